"""The kinds that are served: which of them are the same thing in another version, and how objects get there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj, ResourceCache
from setpoint.kinds.catalog import Resource


class Kind(NamedTuple):
    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def kind_of(resource: Resource, subresource: str) -> Kind:
    """The kind of what is sent there: a Scale, a Binding, options of a connection, or the resource's own."""
    part = resource.subresource(subresource) if subresource else None
    if part is None or not part.kind:
        return Kind(resource.group, resource.version, resource.kind)
    if part.version:
        return Kind(part.group, part.version, part.kind)
    return Kind(resource.group, resource.version, part.kind)


class Followed:
    """Tells whether something changed that the configuration of admission depends on. Asked with every write."""

    def __init__(self, api: ApiServer, prefixes: tuple[str, ...]) -> None:
        self._api = api
        self._prefixes = prefixes
        self._caches: tuple[ResourceCache, ...] = ()
        self._seen = -1
        self._discovery: object = None

    def changed(self) -> bool:
        """Since it was last asked: an object below one of the prefixes, or which kinds are served."""
        api, now = self._api, 0
        for cache in self._caches:
            now += cache.changed
        if now == self._seen and api.discovery is self._discovery:
            return False
        # Built-in kinds keep their caches as long as the server runs; they are there once it has started.
        self._caches = tuple(api.caches[prefix] for prefix in self._prefixes if prefix in api.caches)
        self._seen = sum(cache.changed for cache in self._caches)
        self._discovery = api.discovery
        return True


class Served:
    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def followed(self, *prefixes: str) -> Followed:
        return Followed(self._api, prefixes)

    def registry(self, resource: Resource) -> Registry | None:
        return self._api.registries.get((resource.group, resource.version, resource.plural))

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """The same objects in other versions or groups."""
        return [
            other
            for other in self._api.resources.values()
            if other.is_stored
            and other.storage_prefix == resource.storage_prefix
            and (other.group, other.version) != (resource.group, resource.version)
        ]

    def find(self, kind: Kind) -> Registry | None:
        """Who keeps objects of this kind."""
        for registry in self._api.registries.values():
            resource = registry.resource
            if (resource.group, resource.version, resource.kind) == kind:
                return registry
        return None

    async def object_of(self, attrs: Attributes, obj: Obj | None, matched: Resource) -> Obj | None:
        """One of the objects of a write, as it is seen by whom it matched as `matched`."""
        if obj is None:
            return None
        if attrs.shape is not None:
            return attrs.shape.show(obj)
        kind = kind_of(attrs.resource, attrs.subresource)
        if kind.kind != attrs.resource.kind:
            return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self.shown(obj, attrs.resource, matched)

    async def shown(self, obj: Obj, resource: Resource, wanted: Resource) -> Obj:
        """An object as admission has it, whole, in the wanted version. Shared with `obj`: not to be changed."""
        have, want = self.registry(resource), self.registry(wanted)
        if have is None or want is None:
            return {"apiVersion": wanted.api_version, "kind": wanted.kind, **obj}
        return await have.encoding.seen_as(obj, want.encoding)

    async def taken(self, whole: Obj, resource: Resource, wanted: Resource, unknown: list[str] | None) -> Obj:
        """The way back: typed and defaulted in the version in which it was shown. `unknown` gets unknown fields.
        Raises DecodeError, ApiError."""
        have, want = self.registry(resource), self.registry(wanted)
        assert have is not None and want is not None, "what is not stored is not changed"
        return await have.encoding.taken_from(whole, want.encoding, unknown)
