"""One object that a command is about, or all objects of a kind that match."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.client.paths import path_of
from setpoint.kinds.catalog import Resource

Obj = dict[str, Any]


class Target(NamedTuple):
    resource: Resource
    namespace: str
    """Empty for what is cluster-scoped."""
    name: str
    """Empty for an object of a file that has only a generateName."""
    obj: Obj | None = None
    """As it was read, from a file or from the server."""
    source: str = ""
    """The file it is from; `STDIN`; empty if it is from the server."""

    @property
    def shown(self) -> str:
        """`deployment.apps/web`, as success lines name it."""
        return f"{shown_kind(self.resource)}/{self.name}"

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace, self.name)

    def with_object(self, obj: Obj) -> Target:
        return self._replace(obj=obj, name=(obj.get("metadata") or {}).get("name") or self.name)


class Selection(NamedTuple):
    resource: Resource
    namespace: str
    """Empty: of all namespaces."""
    label_selector: str = ""
    field_selector: str = ""

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace)


def shown_kind(resource: Resource) -> str:
    """`deployment.apps`, or `pod` for the core group."""
    name = resource.kind.lower()
    return f"{name}.{resource.group}" if resource.group else name
