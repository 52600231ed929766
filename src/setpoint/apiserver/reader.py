"""Reads for admission and authorization, straight from the caches."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.apiserver.server import ApiServer
from setpoint.apiserver.watch_cache import Obj


class CacheReader:
    """What is returned is shared by all readers and not to be changed."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def get(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        cache = self._api.caches.get(f"{group or 'core'}/{plural}/")
        if cache is None:
            return None
        entry = cache.get(f"{cache.prefix}{namespace}/{name}" if namespace else cache.prefix + name)
        return entry.obj if entry is not None else None

    def list(self, group: str, plural: str, namespace: str = "") -> Iterable[Obj]:
        cache = self._api.caches.get(f"{group or 'core'}/{plural}/")
        # Most clusters have no quotas, no limits, no default classes: asked with every write, answered at once.
        return (entry.obj for entry in cache.scan(namespace)) if cache else ()
