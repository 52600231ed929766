"""The slices that one controller keeps: found by their Service, and what others do to them noticed."""

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
"""What was written and has not been seen for so long was seen to go before it was known to be there."""
_BY_SERVICE = "service"


def service_key(found: Obj) -> str:
    """Of the Service that a slice is for; empty when it does not say."""
    name = (found["metadata"].get("labels") or {}).get(SERVICE_NAME)
    return f"{found['metadata']['namespace']}/{name}" if name else ""


class OwnSlices:
    def __init__(self, slices: Informer, manager: str, clock: Clock) -> None:
        """`manager` is what it calls itself in the label that says whose a slice is."""
        self._slices = slices
        self._manager = manager
        self._clock = clock
        self.tracker = SliceTracker()
        self._waiting: dict[str, float] = {}
        """Services that must not be looked at before the cache has caught up with what was written; since when."""
        slices.add_index(_BY_SERVICE, lambda found: (service_key(found),))

    def of(self, service: str) -> list[Obj]:
        return [
            found
            for found in self._slices.by_index(_BY_SERVICE, service)
            if self._is_ours(found) and "deletionTimestamp" not in found["metadata"]
        ]

    def wait(self, service: str, slices: list[Obj]) -> Result | None:
        """Not None while the cache does not show what was written. As soon as it does, the Service's turn comes."""
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
        """A Service whose slices somebody else has changed comes after `delay`: there may be more of them."""

        def changed(old: Obj | None, new: Obj | None) -> None:
            for key in self._meddled_with(old, new):
                controller.queue.add_after(key, delay)
            key = service_key(new or old or {})
            if key in self._waiting and not self.tracker.is_stale(key, self.of(key)):
                controller.enqueue(key)

        self._slices.add_handler(changed)

    def _is_ours(self, found: Obj) -> bool:
        return (found["metadata"].get("labels") or {}).get(MANAGED_BY) == self._manager

    def _meddled_with(self, old: Obj | None, new: Obj | None) -> list[str]:
        if new is None:
            if old is None or not self._is_ours(old):
                return []
            key = service_key(old)
            return [] if self.tracker.seen_to_go(key, old) or not key else [key]
        after = service_key(new)
        if old is not None:
            before = service_key(old)
            if before != after:
                return [key for key in (after, before) if key]
            if self._is_ours(old) != self._is_ours(new):
                return [after] if after else []
        return [after] if after and self._is_ours(new) and self.tracker.is_news(after, new) else []
