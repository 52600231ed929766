"""Observation of the Leases in kube-system: when each was last renewed, as this server saw it.

The times in Leases come from the clocks of other machines, which may differ. Whether a Lease is still being renewed is
therefore judged by the time since its last renewal became visible here.
"""

from __future__ import annotations

import asyncio

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.watch_cache import Change, Watch
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj

COORDINATION, LEASES, LEASE_NAMESPACE = "coordination.k8s.io", "leases", "kube-system"
EXPIRY = 15.0
"""Seconds without a visible renewal after which the holder of a Lease counts as gone."""


class LeaseObserver:
    """Follows the Leases until it is closed."""

    def __init__(self, api: ApiResources) -> None:
        self._clock: Clock = api.clock
        self._cache = api.registry(COORDINATION, LEASES).cache
        self._renewals: dict[str, tuple[tuple[str, str], float]] = {}
        """Holder and time of the last renewal of each Lease by its name, and when it became visible here (monotonic
        seconds)."""
        self.changes = 0
        """Number of times that a Lease was created, deleted, acquired, released, or renewed after it had expired."""
        self._changed = asyncio.Event()
        self._watch = Watch.everything(self._deliver, namespace=LEASE_NAMESPACE)
        self._cache.add(self._watch)
        for entry in self._cache.scan(LEASE_NAMESPACE):
            self._record(entry.obj)

    def close(self) -> None:
        self._cache.remove(self._watch)

    def _deliver(self, kind: str, entry: Entry, change: Change) -> None:
        if kind == "DELETED":
            self._renewals.pop(entry.obj["metadata"]["name"], None)
            self._notify()
        else:
            self._record(entry.obj)

    def _record(self, lease: Obj) -> None:
        name, spec = lease["metadata"]["name"], lease.get("spec") or {}
        renewal = (spec.get("holderIdentity") or "", spec.get("renewTime") or "")
        before = self._renewals.get(name)
        if before is None or before[0] != renewal:
            now = self._clock.monotonic()
            self._renewals[name] = renewal, now
            if before is None or before[0][0] != renewal[0] or now - before[1] >= EXPIRY:
                self._notify()

    def _notify(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def age(self, name: str) -> float:
        """Return the seconds since a renewal of this Lease became visible here; infinity if there is no such Lease."""
        found = self._renewals.get(name)
        return self._clock.monotonic() - found[1] if found is not None else float("inf")

    async def changed_since(self, changes: int) -> None:
        """Return when the number of changes is greater than this."""
        while self.changes == changes:
            await self._changed.wait()

    def restart(self) -> None:
        """Count the ages from now: this server could not observe renewals for some time."""
        now = self._clock.monotonic()
        self._renewals = {name: (renewal, now) for name, (renewal, _) in self._renewals.items()}
