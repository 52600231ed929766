"""Leader election: the holder of a Lease runs, the other candidates wait until it expires.

No candidate trusts the clock of another. A candidate measures the time since it last saw the Lease change; a leader
gives up well before any candidate could take over. A leader that was suspended beyond its deadline does not know yet
that it lost the Lease: a client that uses the election as its fence (`meta/lease_term.py`) refuses to send its writes,
and the API server rejects those that are in flight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.lease_term import Term
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_micro
from setpoint.reconcile.events import Recorder
from setpoint.reconcile.run import current_run, periodic_run
from setpoint.tasks import within

log = logging.getLogger("setpoint.reconcile")


LEASES = builtin("leases", "coordination.k8s.io")
_TOLERANCE = 20.0
"""Seconds by which a leader may be late with its renewal before it is reported as unhealthy."""
_JITTER = 0.5
"""The part of the retry period by which the pauses of a candidate differ."""
_JITTER_STEPS = 1000
_RELEASE_TIMEOUT = 3.0
"""Seconds that a stopping process spends on releasing its Lease: a server without quorum does not answer."""


class LeadershipLost(Exception):
    """The Lease was not renewed in time; another candidate may be leading."""


class ElectionTimes(NamedTuple):
    lease_duration: float = 15.0
    """Seconds that candidates wait after the last observed renewal before they acquire the Lease."""
    renew_deadline: float = 10.0
    """Seconds during which a leader retries to renew before it gives up."""
    retry_period: float = 2.0


class LeaderElection:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        *,
        name: str,
        identity: str,
        namespace: str = "kube-system",
        times: ElectionTimes | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Create a candidate. `identity` must be unique; a candidate whose identity still holds the Lease resumes at
        once."""
        self._client = client
        self._clock = clock
        self._ids = ids
        self.name = name
        self._namespace = namespace
        self._times = times or ElectionTimes()
        self._recorder = recorder
        self.identity = identity
        self._run = periodic_run("leader-election", clock.now(), f"timer:{self._times.retry_period:g}")
        """The run that the writes of the Lease belong to."""
        self.leading = asyncio.Event()
        self.standing_by = asyncio.Event()
        """Set while another candidate is known to lead."""
        self._lease: Obj | None = None
        """The Lease as it was last read or written; None before that."""
        self._seen_at = 0.0

    @property
    def overdue(self) -> float:
        """Seconds by which a leader is late in noticing that it lost the Lease; 0 or less means healthy."""
        if not self.leading.is_set():
            return 0.0
        return self._clock.monotonic() - self._seen_at - self._times.lease_duration - _TOLERANCE

    def term(self) -> Term:
        """Return the lease term of a write that is sent now. Raise Conflict if the Lease was not renewed in time or
        another candidate is known to hold it."""
        lease = self._lease
        in_time = self._clock.monotonic() < self._seen_at + self._times.renew_deadline
        if lease is None or not in_time or not self.leading.is_set() or self.holder != self.identity:
            raise Conflict(
                f"not sent: {self.identity} has not renewed the lease {self._namespace}/{self.name} in time and may no "
                "longer lead"
            )
        return Term(self._namespace, self.name, self.identity, lease["spec"].get("leaseTransitions") or 0)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Acquire the Lease, then run `work` for as long as it is held.

        Raise LeadershipLost after `work` was cancelled and has ended. When `work` returns, or this coroutine is
        cancelled, the Lease is released.
        """
        while not await self._attempt(self._times.renew_deadline):
            if self.holder not in ("", self.identity):
                self.standing_by.set()
            await self._pause()
        self.standing_by.clear()
        log.info("%s became leader of %s", self.identity, self.name)
        self._announce("became leader")
        self.leading.set()
        held = True
        try:
            async with asyncio.TaskGroup() as tasks:
                renewing = tasks.create_task(self._renew())
                await work()
                renewing.cancel()
        except* LeadershipLost:
            held = False
        finally:
            self.leading.clear()
            if held:
                await self._release()
        if not held:
            self._announce("stopped leading")
            raise LeadershipLost(f"{self.identity} no longer holds the lease {self._namespace}/{self.name}")

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._times.retry_period)
            deadline = self._seen_at + self._times.renew_deadline
            if await self._attempt(max(0.0, deadline - self._clock.monotonic())):
                continue
            if self._clock.monotonic() >= deadline or self.holder != self.identity:
                raise LeadershipLost

    async def _pause(self) -> None:
        """Wait for at most the retry period, so that a renewal is seen soon after it is made, and not beyond the expiry
        of another candidate's Lease. A new leader then leads one lease duration and one retry period after the last
        renewal."""
        pause = self._times.retry_period * (1 - _JITTER * self._ids.below(_JITTER_STEPS) / _JITTER_STEPS)
        expires_in = self._expiry - self._clock.monotonic()
        await self._clock.sleep(min(pause, expires_in) if expires_in > 0 else pause)

    @property
    def holder(self) -> str:
        """Return the last known holder; empty means none."""
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def _announce(self, what: str) -> None:
        if self._recorder is not None and self._lease is not None:
            before = current_run.set(self._run)
            self._recorder.normal(self._lease, "LeaderElection", f"{self.identity} {what}")
            current_run.reset(before)

    # -- one attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, timeout: float) -> bool:
        """Return whether the Lease is held now. A server that does not respond within `timeout` seconds counts as
        no."""
        started = self._clock.monotonic()
        before = current_run.set(self._run)
        try:
            await within(self._clock, timeout, self._acquire_or_renew(started))
        except (ApiError, Unreachable, TimeoutError) as error:
            lost_a_race = isinstance(error, ApiError) and error.code == 409
            level = logging.INFO if lost_a_race else logging.WARNING
            log.log(level, "cannot acquire or renew the lease %s: %s", self.name, str(error) or "timed out")
            return False
        finally:
            current_run.reset(before)
        return self.holder == self.identity

    async def _acquire_or_renew(self, started: float) -> None:
        now = self._clock.now()
        if self._lease is not None and self.holder == self.identity and self.leading.is_set():
            # Usually nothing else has written it: update without reading first.
            with suppress(ApiError):
                self._record(await self._client.update(self._claimed(self._lease, now)), started)
                return
        try:
            lease = await self._client.get(LEASES, self.name, self._namespace)
        except NotFound:
            self._record(await self._client.create(self._claimed(None, now)), started)
            return
        if self._lease is None or lease["metadata"]["resourceVersion"] != self._lease["metadata"]["resourceVersion"]:
            self._record(lease, self._clock.monotonic())
        if self._is_held_by_another(lease):
            return
        self._record(await self._client.update(self._claimed(lease, now)), started)

    def _record(self, lease: Obj, at: float) -> None:
        self._lease, self._seen_at = lease, at

    @property
    def _expiry(self) -> float:
        """Return when the Lease expires that was last read or written; it has expired if there is none."""
        spec = (self._lease or {}).get("spec") or {}
        return self._seen_at + float(spec.get("leaseDurationSeconds") or 0)

    def _is_held_by_another(self, lease: Obj) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if not holder or holder == self.identity:
            return False
        return self._clock.monotonic() < self._expiry

    def _claimed(self, lease: Obj | None, now: datetime) -> Obj:
        """Return the Lease with this candidate as its holder, renewed now."""
        spec = (lease or {}).get("spec") or {}
        stamp, ours = format_micro(now), spec.get("holderIdentity") == self.identity
        claimed = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._times.lease_duration),
            "acquireTime": spec.get("acquireTime") if ours else stamp,
            "renewTime": stamp,
            "leaseTransitions": (spec.get("leaseTransitions") or 0) + (0 if ours or lease is None else 1),
        }
        meta = lease["metadata"] if lease is not None else {"name": self.name, "namespace": self._namespace}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": {**spec, **claimed},
        }

    async def _release(self) -> None:
        """Release the Lease, so that the next candidate need not wait. Ignore errors: the Lease expires by itself."""
        lease = self._lease
        if lease is None:
            return
        spec = self._claimed(lease, self._clock.now())["spec"]
        spec |= {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": spec["renewTime"]}
        before = current_run.set(self._run)
        try:
            with suppress(ApiError, Unreachable, TimeoutError):
                await within(self._clock, _RELEASE_TIMEOUT, self._client.update({**lease, "spec": spec}))
        finally:
            current_run.reset(before)
        self._lease = None
