"""The served resources, which of them are versions of the same objects, and conversion between these versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.kinds.catalog import Resource
from setpoint.meta.objects import Obj


class Kind(NamedTuple):
    """Group, version and kind."""

    group: str
    version: str
    kind: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}, Kind={self.kind}"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def kind_of(resource: Resource, subresource: str) -> Kind:
    """Return the kind that is sent to a subresource: a Scale, a Binding, connection options, or the resource's own
    kind."""
    part = resource.subresource(subresource) if subresource else None
    if part is None or not part.kind:
        return Kind(resource.group, resource.version, resource.kind)
    if part.version:
        return Kind(part.group, part.version, part.kind)
    return Kind(resource.group, resource.version, part.kind)


class ChangeTracker:
    """Detects changes of the objects that the admission configuration depends on; checked with every write."""

    def __init__(self, api: ApiResources, prefixes: tuple[str, ...]) -> None:
        self._api = api
        self._prefixes = prefixes
        self._caches: tuple[ResourceCache, ...] = ()
        self._seen = -1
        self._discovery: object = None

    def changed(self) -> bool:
        """Return whether an object below one of the prefixes, or the set of served kinds, changed since the last
        call."""
        api, now = self._api, 0
        for cache in self._caches:
            now += cache.changed
        if now == self._seen and api.discovery is self._discovery:
            return False
        # The caches of built-in kinds exist from the start of the server to its end.
        self._caches = tuple(api.caches[prefix] for prefix in self._prefixes if prefix in api.caches)
        self._seen = sum(cache.changed for cache in self._caches)
        self._discovery = api.discovery
        return True


class ServedResources:
    """The resources of a server."""

    def __init__(self, api: ApiResources) -> None:
        self._api = api

    def track_changes(self, *prefixes: str) -> ChangeTracker:
        return ChangeTracker(self._api, prefixes)

    def registry(self, resource: Resource) -> Registry | None:
        return self._api.registries.get((resource.group, resource.version, resource.plural))

    def equivalents(self, resource: Resource) -> Sequence[Resource]:
        """Return the resources of the same objects in other versions or groups."""
        return [
            other
            for other in self._api.served.values()
            if other.is_stored
            and other.storage_prefix == resource.storage_prefix
            and (other.group, other.version) != (resource.group, resource.version)
        ]

    def find(self, kind: Kind) -> Registry | None:
        """Return the registry of objects of this kind, or None if it is not served."""
        for registry in self._api.registries.values():
            resource = registry.resource
            if (resource.group, resource.version, resource.kind) == kind:
                return registry
        return None

    async def object_of(self, attrs: Attributes, obj: Obj | None, matched: Resource) -> Obj | None:
        """Return an object of a write in the version as which it matched."""
        if obj is None:
            return None
        if attrs.view is not None:
            return attrs.view.render(obj)
        kind = kind_of(attrs.resource, attrs.subresource)
        if kind.kind != attrs.resource.kind:
            return {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self.to_version(obj, attrs.resource, matched)

    async def to_version(self, obj: Obj, resource: Resource, wanted: Resource) -> Obj:
        """Return a complete object in the wanted version. It may share parts with `obj` and must not be changed."""
        have, want = self.registry(resource), self.registry(wanted)
        if have is None or want is None:
            return {"apiVersion": wanted.api_version, "kind": wanted.kind, **obj}
        return await have.encoding.to_version(obj, want.encoding)

    async def from_version(self, whole: Obj, resource: Resource, wanted: Resource, unknown: list[str] | None) -> Obj:
        """Convert an object back, decoded and defaulted in its version; unknown fields are added to `unknown`. Raises
        DecodeError, ApiError."""
        have, want = self.registry(resource), self.registry(wanted)
        assert have is not None and want is not None, "only stored resources are converted"
        return await have.encoding.from_version(whole, want.encoding, unknown)
