"""The election of the server that maintains the objects of the cluster, if several servers share a store.

The servers elect it by a Lease, as components do (`reconcile/leader_election.py`). A server sees the Lease in its watch
cache, so candidates cost no requests and take over at once when the holder releases it. If the holder crashed, they
wait until no renewal has been visible for the duration of the Lease. The writes of the holder are committed only while
it has the Lease: the election is their fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.internal_writes import current, ensure, update
from setpoint.apiserver.registry import completes_within
from setpoint.apiserver.transactions import fenced_by
from setpoint.apiserver.upkeep.leases import COORDINATION, EXPIRY, LEASE_NAMESPACE, LEASES, LeaseObserver
from setpoint.apiserver.upkeep.loop import log
from setpoint.meta.errors import ApiError, Conflict
from setpoint.meta.lease_term import Term
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro
from setpoint.store.interface import StoreError
from setpoint.tasks import child_tasks, within

UPKEEP_LEASE: Final = "setpoint-upkeep"
_RENEW_DEADLINE: Final = 10.0
"""Seconds after its last renewal until which the holder writes."""
_RETRY_PERIOD: Final = 2.0
_RELEASE_TIMEOUT: Final = 2.0


class _HeldByAnother(Exception):
    """Another server holds the Lease, or it was taken from this one."""


class Election:
    def __init__(self, api: ApiResources, leases: LeaseObserver, identity: str) -> None:
        """`identity` must be unique. A server that restarts with the identity of the holder resumes at once."""
        self._api = api
        self._clock = api.clock
        self._leases = leases
        self._identity = identity
        self._transitions = 0
        """The leaseTransitions of the own term."""
        self._renewed = 0.0
        """When the last successful renewal was begun (monotonic seconds)."""
        self.leading = False

    def term(self) -> Term:
        """Return the term of the holder. Raises Conflict if this server may no longer hold the Lease."""
        if not self.leading or self._clock.monotonic() >= self._renewed + _RENEW_DEADLINE:
            raise Conflict(f"this server has not renewed the lease {LEASE_NAMESPACE}/{UPKEEP_LEASE} in time")
        return Term(LEASE_NAMESPACE, UPKEEP_LEASE, self._identity, self._transitions)

    async def run(self, work: Callable[[], Awaitable[None]], on_standby: Callable[[], None]) -> None:
        """Run `work`, fenced, whenever this server holds the Lease, until this coroutine is cancelled.

        `on_standby` is called when another server is known to hold the Lease."""
        while True:
            await self._acquire(on_standby)
            log.info("this server maintains the objects of the cluster")
            self.leading, lost = True, False
            try:
                async with child_tasks(self._fenced(work), self._renew()) as (working, renewing):
                    await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
                    lost = renewing.done()
                    if working.done():
                        working.result()
            finally:
                self.leading = False
                if not lost:
                    await self._release()
            log.warning("this server has lost the lease %s and no longer maintains the cluster", UPKEEP_LEASE)

    async def _fenced(self, work: Callable[[], Awaitable[None]]) -> None:
        with fenced_by(self):
            await work()

    async def _acquire(self, on_standby: Callable[[], None]) -> None:
        while True:
            changes = self._leases.changes
            if await self._attempt(_RENEW_DEADLINE):
                return
            remaining = EXPIRY - self._leases.age(UPKEEP_LEASE)
            if remaining > 0:
                on_standby()
            # Renewals by the holder are no changes: a candidate wakes up when the Lease is released, or may be expired.
            wait = max(remaining, _RETRY_PERIOD)
            await completes_within(self._clock, wait, self._leases.changed_since(changes))

    async def _renew(self) -> None:
        """Renew the Lease; return when it is lost."""
        while True:
            await self._clock.sleep(_RETRY_PERIOD)
            deadline = self._renewed + _RENEW_DEADLINE
            if await self._attempt(max(0.0, deadline - self._clock.monotonic())):
                continue
            if self._clock.monotonic() >= deadline or self._holder() != self._identity:
                return

    async def _attempt(self, timeout: float) -> bool:
        """Acquire or renew the Lease. Return whether this server holds it now."""
        started = self._clock.monotonic()
        try:
            await within(self._clock, timeout, self._claim())
        except _HeldByAnother:
            return False
        except (ApiError, StoreError, TimeoutError) as error:
            log.warning("cannot acquire or renew the lease %s: %s", UPKEEP_LEASE, str(error) or "timed out")
            return False
        self._renewed = started
        return True

    async def _claim(self) -> None:
        """Write the Lease with this server as its holder. Raises _HeldByAnother."""
        lease: Obj = {"metadata": {"name": UPKEEP_LEASE, "namespace": LEASE_NAMESPACE}}
        if current(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, UPKEEP_LEASE) is None:
            self._fill(lease)
            entry = await ensure(self._api, COORDINATION, LEASES, lease)
        else:
            updated = await update(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, UPKEEP_LEASE, self._fill)
            if updated is None:
                raise _HeldByAnother  # deleted in this moment; the next attempt creates it
            entry = updated
        spec = entry.obj["spec"]
        if spec.get("holderIdentity") != self._identity:
            raise _HeldByAnother
        self._transitions = spec.get("leaseTransitions") or 0

    def _fill(self, lease: Obj) -> None:
        spec, now = lease.setdefault("spec", {}), format_micro(self._clock.now())
        holder = spec.get("holderIdentity") or ""
        if holder != self._identity and (self.leading or (holder and self._leases.age(UPKEEP_LEASE) < EXPIRY)):
            raise _HeldByAnother
        if not self.leading:
            # A new term, also if the holder was an earlier process of this server.
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (spec.get("leaseTransitions") or 0) + 1 if "renewTime" in spec else 0
        spec.update(holderIdentity=self._identity, leaseDurationSeconds=int(EXPIRY), renewTime=now)

    def _holder(self) -> str:
        entry = current(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, UPKEEP_LEASE)
        return str((entry.obj.get("spec") or {}).get("holderIdentity") or "") if entry is not None else ""

    async def _release(self) -> None:
        """Release the Lease, so that another server need not wait. Ignore failures: it expires by itself."""

        def release(lease: Obj) -> None:
            if lease["spec"].get("holderIdentity") != self._identity:
                raise _HeldByAnother
            lease["spec"].update(holderIdentity="", leaseDurationSeconds=1, renewTime=format_micro(self._clock.now()))

        try:
            write = update(self._api, COORDINATION, LEASES, LEASE_NAMESPACE, UPKEEP_LEASE, release)
            await within(self._clock, _RELEASE_TIMEOUT, write)
        except (ApiError, StoreError, TimeoutError, _HeldByAnother) as error:
            log.warning("cannot release the lease %s: %s", UPKEEP_LEASE, str(error) or type(error).__name__)
