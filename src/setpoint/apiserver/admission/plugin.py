"""The interface between the registry and admission: plugins may change or deny a write before it is stored.

A plugin states which requests it handles (asked once for each served resource, then cached). It may change `attrs.obj`
in `mutate`, and may deny the request by raising an ApiError in either hook. It reads other objects through a Reader and
never writes; a plugin that must write (quota) gets a function for it from its constructor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from setpoint.kinds.catalog import Resource
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj


class Reader(Protocol):
    """Reads the current objects from the watch cache. Returned objects are shared and must not be changed."""

    def get(self, group: str, plural: str, namespace: str, name: str) -> Obj | None: ...

    def list(self, group: str, plural: str, namespace: str = "") -> Iterable[Obj]: ...


class SubresourceView(Protocol):
    """The representation of an object at a subresource that changes part of it, such as a Scale."""

    def render(self, obj: Obj) -> Obj:
        """Return the complete representation, with kind and apiVersion."""
        ...

    def apply(self, obj: Obj, view: Obj) -> Obj:
        """Return a new object with the changes of the representation `view`. Raises ApiError."""
        ...


@dataclass(slots=True)
class Reinvocation:
    """State of the second pass of mutating plugins; None unless a plugin may request one."""

    wanted: bool = False
    """Whether a plugin requested a second pass."""
    running: bool = False
    """Whether this is the second pass; there is no third."""
    state: dict[str, Any] = field(default_factory=dict)
    """State of each plugin, by name."""


@dataclass(slots=True)
class Attributes:
    """The attributes of one write that plugins see."""

    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    resource: Resource
    subresource: str
    namespace: str
    name: str
    """Empty while it is still to be generated, and if a collection is deleted."""
    obj: Obj | None
    """The new object in the stored version, without kind and apiVersion; None for a deletion. `mutate` may change it in
    place."""
    old: Obj | None
    """The stored object, which is shared and must not be changed; None for a creation."""
    user: UserInfo
    now: datetime
    dry_run: bool = False
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The parameters of the request as they were sent."""
    delete_options: Mapping[str, Any] = field(default_factory=dict)
    """The DeleteOptions of a deletion; empty otherwise."""
    view: SubresourceView | None = None
    """The representation of the object at the subresource; None if it is the object itself."""
    reinvocation: Reinvocation | None = None
    warnings: dict[str, None] = field(default_factory=dict)
    """Warnings for the client in their order, each once."""
    audit: dict[str, str] = field(default_factory=dict)
    """Annotations that plugins add to the audit event."""
    audit_objects: bool = False
    """Whether audit annotations may contain parts of the object."""

    @property
    def kind(self) -> str:
        return self.resource.kind

    def is_(self, group: str, plural: str, subresource: str = "") -> bool:
        return self.resource.plural == plural and self.resource.group == group and self.subresource == subresource

    def warn(self, text: str) -> None:
        self.warnings[text] = None

    def forbidden(self, why: str) -> Forbidden:
        """Return the denial of this write in upstream's words; a name that is still to be generated is shown by its
        prefix."""
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
        """Change or deny the write."""

    async def validate(self, attrs: Attributes) -> None:
        """Deny the write, or do nothing."""


_RequestKind = tuple[str, str, str, str, str]
"""Operation, group, version, plural and subresource."""


class Chain:
    """The enabled plugins in order; each request is passed only to those that handle it."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)
        self._handling: dict[_RequestKind, tuple[Resource, _Hooks]] = {}
        """The plugins for each kind of request, with the resource that they were asked about. A definition that is
        deleted and created again is another resource of the same name, possibly with another scope."""

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
        """Drop the cached plugins of a resource that is no longer served."""
        for kind in [kind for kind in self._handling if (kind[1], kind[3]) == (group, plural)]:
            del self._handling[kind]

    def _hooks(self, attrs: Attributes) -> _Hooks:
        resource = attrs.resource
        kind = (attrs.operation, resource.group, resource.version, resource.plural, attrs.subresource)
        known = self._handling.get(kind)
        if known is None or known[0] is not resource:
            handling = [one for one in self._plugins if one.handles(attrs.operation, resource, attrs.subresource)]
            hooks = _Hooks(_implementing("mutate", handling), _implementing("validate", handling))
            known = self._handling[kind] = resource, hooks
        return known[1]


class _Hooks(NamedTuple):
    mutating: tuple[Plugin, ...]
    validating: tuple[Plugin, ...]


def _implementing(hook: str, plugins: Iterable[Plugin]) -> tuple[Plugin, ...]:
    return tuple(one for one in plugins if getattr(type(one), hook) is not getattr(Plugin, hook))
