"""One object of a command, or all matching objects of a kind."""

from __future__ import annotations

from typing import Any, NamedTuple

from setpoint.client.paths import path_of
from setpoint.kinds.catalog import Resource

Obj = dict[str, Any]


class Target(NamedTuple):
    resource: Resource
    namespace: str
    """The namespace; empty for cluster-scoped objects."""
    name: str
    """The name; empty for an object of a file with only a generateName."""
    obj: Obj | None = None
    """The object as it was read from a file or the server; None if it was not read."""
    source: str = ""
    """The file of the object, or `STDIN`; empty for an object of the server."""

    @property
    def shown(self) -> str:
        """The name in success lines: `deployment.apps/web`."""
        return f"{shown_kind(self.resource)}/{self.name}"

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace, self.name)

    def with_object(self, obj: Obj) -> Target:
        return self._replace(obj=obj, name=(obj.get("metadata") or {}).get("name") or self.name)


class Selection(NamedTuple):
    resource: Resource
    namespace: str
    """The namespace; empty means all namespaces."""
    label_selector: str = ""
    field_selector: str = ""

    @property
    def path(self) -> str:
        return path_of(self.resource, self.namespace)


def shown_kind(resource: Resource) -> str:
    """Return `deployment.apps`, or `pod` for the core group."""
    name = resource.kind.lower()
    return f"{name}.{resource.group}" if resource.group else name
