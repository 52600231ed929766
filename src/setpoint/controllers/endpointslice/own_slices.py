"""The slices that one controller manages: finds them by Service and detects changes made by others."""

from __future__ import annotations

from typing import Any

from setpoint.client.resources import builtin
from setpoint.controllers.endpointslice.endpoints import MANAGED_BY, SERVICE_NAME
from setpoint.controllers.endpointslice.tracker import SliceTracker
from setpoint.meta.clock import Clock
from setpoint.reconcile import Controller, Informer, Result

Obj = dict[str, Any]

SLICES = builtin("endpointslices", "discovery.k8s.io")
_LONGEST_WAIT = 30.0
"""Seconds after which a write that was not observed is assumed to have been deleted before it was observed."""
_BY_SERVICE = "service"


def service_key(found: Obj) -> str:
    """Return the key of the slice's Service, or an empty string if it has none."""
    name = (found["metadata"].get("labels") or {}).get(SERVICE_NAME)
    return f"{found['metadata']['namespace']}/{name}" if name else ""


class OwnSlices:
    def __init__(self, slices: Informer, manager: str, clock: Clock) -> None:
        """Create the index. `manager` is the value of the managed-by label."""
        self._slices = slices
        self._manager = manager
        self._clock = clock
        self.tracker = SliceTracker()
        self._waiting: dict[str, float] = {}
        """Services that must not be reconciled before the cache has caught up, with the time since when they wait."""
        slices.add_index(_BY_SERVICE, lambda found: (service_key(found),))

    def of(self, service: str) -> list[Obj]:
        return [
            found
            for found in self._slices.by_index(_BY_SERVICE, service)
            if self._is_ours(found) and "deletionTimestamp" not in found["metadata"]
        ]

    def wait(self, service: str, slices: list[Obj]) -> Result | None:
        """Return a requeue while the cache does not show what was written, otherwise None. The Service is enqueued as
        soon as it does."""
        if self.tracker.is_stale(service, slices):
            now = self._clock.monotonic()
            if now - self._waiting.setdefault(service, now) < _LONGEST_WAIT:
                return Result(requeue_after=_LONGEST_WAIT)
            self.tracker.forget(service)
        self._waiting.pop(service, None)
        return None

    def forget(self, service: str) -> None:
        self.tracker.forget(service)
        self._waiting.pop(service, None)

    def watch(self, controller: Controller, delay: float) -> None:
        """Enqueue a Service whose slices were changed by another client after `delay`, so that further changes
        coalesce."""

        def changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._changed_by_others(old, new):
                controller.queue.add_after(key, delay)
            key = service_key(new or old or {})
            if key in self._waiting and not self.tracker.is_stale(key, self.of(key)):
                controller.enqueue(key)

        self._slices.add_handler(changed)

    def _is_ours(self, found: Obj) -> bool:
        return (found["metadata"].get("labels") or {}).get(MANAGED_BY) == self._manager

    def _changed_by_others(self, old: Obj | None, new: Obj | None) -> list[str]:
        if new is None:
            if old is None or not self._is_ours(old):
                return []
            key = service_key(old)
            return [] if self.tracker.deletion_observed(key, old) or not key else [key]
        after = service_key(new)
        if old is not None:
            before = service_key(old)
            if before != after:
                return [key for key in (after, before) if key]
            if self._is_ours(old) != self._is_ours(new):
                return [after] if after else []
        return [after] if after and self._is_ours(new) and self.tracker.is_foreign_change(after, new) else []
