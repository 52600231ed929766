"""An informer's cache overlaid with the controller's own newer writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from setpoint.reconcile import Informer, key_of

Obj = dict[str, Any]


def _revision(obj: Obj) -> int:
    return int(obj["metadata"]["resourceVersion"])


class Latest:
    """Returns own writes until the informer has caught up. Deciding by a stale cache could make the same decision
    twice, and differently."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer
        self._written: dict[str, Obj] = {}
        informer.add_handler(self._seen)

    def get(self, key: str) -> Obj | None:
        return self._written.get(key) or self._informer.get(key)

    def by_index(self, name: str, value: str) -> Iterable[Obj]:
        """Return the objects of the informer's index in their latest known version, and those that the index may
        lack."""
        found = {key_of(obj): obj for obj in self._informer.by_index(name, value)}
        return {**found, **self._written}.values()

    def wrote(self, obj: Obj) -> Obj:
        key, seen = key_of(obj), self._informer.get(key_of(obj))
        behind = int(self._informer.resource_version or "0") < _revision(obj)
        if behind and (seen is None or _revision(seen) < _revision(obj)):
            self._written[key] = obj
        return obj

    def _seen(self, old: Obj | None, new: Obj | None) -> None:
        key = key_of(new or old or {})
        mine = self._written.get(key)
        if mine is not None and (new is None or _revision(new) >= _revision(mine)):
            del self._written[key]
