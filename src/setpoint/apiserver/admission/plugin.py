"""The seam between the registry and admission: plugins see a write before it is stored, change it or refuse it.

A plugin states which requests it handles (asked once for each served resource, then remembered), may change
`attrs.obj` in `mutate`, and may refuse by raising an ApiError in either hook. It reads other objects through a Reader,
never writes: a plugin that must account for something (quota) gets what it needs from its constructor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden

Obj = dict[str, Any]


class Reader(Protocol):
    """Reads of current objects, straight from the watch cache. What is returned is shared: not to be changed."""

    def get(self, group: str, plural: str, namespace: str, name: str) -> Obj | None: ...

    def list(self, group: str, plural: str, namespace: str = "") -> Iterable[Obj]: ...


class Shape(Protocol):
    """How a write that changes an object in part is seen from outside: as a Scale instead of the workload."""

    def show(self, obj: Obj) -> Obj:
        """Whole, with kind and apiVersion."""
        ...

    def take(self, obj: Obj, shown: Obj) -> Obj:
        """The object, a fresh one, as `shown` wants it. Raises ApiError."""
        ...


@dataclass(slots=True)
class Reinvocation:
    """What the first round of mutating plugins leaves for the second. Only plugins that may want one make it."""

    wanted: bool = False
    running: bool = False
    """The second round: there is no third."""
    state: dict[str, Any] = field(default_factory=dict)
    """By plugin."""


@dataclass(slots=True)
class Attributes:
    """One write, as admission sees it."""

    operation: str
    """CREATE, UPDATE, DELETE or CONNECT"""
    resource: Resource
    subresource: str
    namespace: str
    name: str
    """Empty as long as it is still to be generated, and where a whole collection is deleted."""
    obj: Obj | None
    """In the stored version, without kind and apiVersion; None for a deletion. `mutate` may change it in place."""
    old: Obj | None
    """The stored object; shared, not to be changed. None for a creation."""
    user: UserInfo
    now: datetime
    dry_run: bool = False
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The options of the request, as they were sent."""
    delete_options: Mapping[str, Any] = field(default_factory=dict)
    """Those of a deletion."""
    shape: Shape | None = None
    reinvocation: Reinvocation | None = None
    warnings: list[str] = field(default_factory=list)
    audit: dict[str, str] = field(default_factory=dict)
    """What plugins have to say to those who read the audit log."""
    audit_objects: bool = False
    """Whether those may read parts of the object."""

    @property
    def kind(self) -> str:
        return self.resource.kind

    def is_(self, group: str, plural: str, subresource: str = "") -> bool:
        return self.resource.plural == plural and self.resource.group == group and self.subresource == subresource

    def forbidden(self, why: str) -> Forbidden:
        """The refusal of this write in upstream's words; a name still to be generated is shown by its base."""
        name = self.name
        if not name:
            meta = self.obj.get("metadata", {}) if self.obj is not None else {}
            name = meta.get("name") or meta.get("generateName") or "Unknown"
        return Forbidden.of(self.resource.group, self.resource.plural, name, why)


class Plugin:
    name: str

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        raise NotImplementedError

    async def mutate(self, attrs: Attributes) -> None:
        """Change or refuse."""

    async def validate(self, attrs: Attributes) -> None:
        """Refuse, or let pass."""


_Sort = tuple[str, str, str, str, str]
"""Operation, group, version, plural and subresource."""


class Chain:
    """The plugins in force, in order; each request is shown only to those that handle it."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)
        self._handling: dict[_Sort, tuple[Resource, _Hooks]] = {}
        """The plugins for each sort of request, with the resource that they were asked about. A definition that is
        deleted and made again is another resource, perhaps of the other scope, under the same name."""

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        return self._plugins

    async def mutate(self, attrs: Attributes) -> None:
        plugins = self._hooks(attrs).mutating
        for plugin in plugins:
            await plugin.mutate(attrs)
        again = attrs.reinvocation
        if again is not None and again.wanted:
            again.running = True
            for plugin in plugins:
                await plugin.mutate(attrs)

    async def validate(self, attrs: Attributes) -> None:
        for plugin in self._hooks(attrs).validating:
            await plugin.validate(attrs)

    def forget(self, group: str, plural: str) -> None:
        """Drop what is remembered about a resource that is no longer served."""
        for sort in [sort for sort in self._handling if (sort[1], sort[3]) == (group, plural)]:
            del self._handling[sort]

    def _hooks(self, attrs: Attributes) -> _Hooks:
        resource = attrs.resource
        sort = (attrs.operation, resource.group, resource.version, resource.plural, attrs.subresource)
        known = self._handling.get(sort)
        if known is None or known[0] is not resource:
            handling = [one for one in self._plugins if one.handles(attrs.operation, resource, attrs.subresource)]
            hooks = _Hooks(_overriding("mutate", handling), _overriding("validate", handling))
            known = self._handling[sort] = resource, hooks
        return known[1]


class _Hooks(NamedTuple):
    mutating: tuple[Plugin, ...]
    validating: tuple[Plugin, ...]


def _overriding(hook: str, plugins: Iterable[Plugin]) -> tuple[Plugin, ...]:
    return tuple(one for one in plugins if getattr(type(one), hook) is not getattr(Plugin, hook))
