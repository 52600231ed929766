"""One of many: whoever holds a Lease works, the others wait for it to run out.

Nobody trusts the clock of another. A candidate counts the time since it last saw the Lease change; a leader gives up
well before a candidate could have counted to the end. A leader that was paused beyond its deadline does not know yet
that it is none: a client with the election as its fence (`meta/lease_term.py`) refuses to send its writes, and the API
server refuses those that are on their way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError, Conflict, NotFound
from setpoint.meta.lease_term import Term
from setpoint.meta.times import format_micro
from setpoint.reconcile.events import Recorder

log = logging.getLogger("setpoint.reconcile")

Obj = dict[str, Any]

LEASES = builtin("leases", "coordination.k8s.io")
_TOLERANCE = 20.0
"""With a leader that has not renewed in time, before it is said to be unwell."""
_JITTER = 1.2
_FINE = 1000


class LeadershipLost(Exception):
    """The Lease could not be renewed in time; somebody else may lead by now."""


class ElectionTimes(NamedTuple):
    lease_duration: float = 15.0
    """How long the others wait after the last sign of life."""
    renew_deadline: float = 10.0
    """How long a leader tries to renew before it gives up."""
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
        """`identity` is nobody else's. One that was used before and holds the Lease still takes it up at once."""
        self._client = client
        self._clock = clock
        self._ids = ids
        self.name = name
        self._namespace = namespace
        self._times = times or ElectionTimes()
        self._recorder = recorder
        self.identity = identity
        self.leading = asyncio.Event()
        self.standing_by = asyncio.Event()
        """Another one leads, as far as is known."""
        self._lease: Obj | None = None
        """As it was last seen or written."""
        self._seen_at = 0.0

    @property
    def overdue(self) -> float:
        """For how many seconds somebody who leads should have noticed that the Lease is lost; not above 0: all is
        well."""
        if not self.leading.is_set():
            return 0.0
        return self._clock.monotonic() - self._seen_at - self._times.lease_duration - _TOLERANCE

    def term(self) -> Term:
        """Return the term that a write belongs to which is sent now. Raises Conflict if the Lease was not renewed in
        time, or is known to be another's: somebody else may lead already."""
        lease = self._lease
        in_time = self._clock.monotonic() < self._seen_at + self._times.renew_deadline
        if lease is None or not in_time or not self.leading.is_set() or self.holder != self.identity:
            raise Conflict(
                f"not sent: {self.identity} has not renewed the lease {self._namespace}/{self.name} in time and may no "
                "longer lead"
            )
        return Term(self._namespace, self.name, self.identity, lease["spec"].get("leaseTransitions") or 0)

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Waits for the Lease, then does the work for as long as it is held. Raises LeadershipLost, with the work
        cancelled and over. When the work ends, or all of this is cancelled, the Lease is given back."""
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
        jitter = 1 + _JITTER * self._ids.below(_FINE) / _FINE
        await self._clock.sleep(self._times.retry_period * jitter)

    @property
    def holder(self) -> str:
        """As far as is known; empty: nobody."""
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def _announce(self, what: str) -> None:
        if self._recorder is not None and self._lease is not None:
            self._recorder.normal(self._lease, "LeaderElection", f"{self.identity} {what}")

    # -- one attempt --------------------------------------------------------------------------------------------------

    async def _attempt(self, patience: float) -> bool:
        """Whether the Lease is ours now. A server that does not answer within the patience is a no."""
        started = self._clock.monotonic()
        try:
            await self._within(patience, self._take(started))
        except (ApiError, Unreachable, TimeoutError) as error:
            lost_a_race = isinstance(error, ApiError) and error.code == 409
            level = logging.INFO if lost_a_race else logging.WARNING
            log.log(level, "cannot have the lease %s: %s", self.name, str(error) or "no answer in time")
            return False
        return self.holder == self.identity

    async def _within(self, seconds: float, work: Awaitable[None]) -> None:
        """By the clock that was handed in."""
        over = asyncio.ensure_future(work)
        limit = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((over, limit), return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                raise TimeoutError
            over.result()
        finally:
            for each in (over, limit):
                each.cancel()
            await asyncio.gather(over, limit, return_exceptions=True)

    async def _take(self, started: float) -> None:
        now = self._clock.now()
        if self._lease is not None and self.holder == self.identity and self.leading.is_set():
            # Most likely nobody touched it: no need to read it first.
            with suppress(ApiError):
                self._note(await self._client.update(self._claimed(self._lease, now)), started)
                return
        try:
            lease = await self._client.get(LEASES, self.name, self._namespace)
        except NotFound:
            self._note(await self._client.create(self._claimed(None, now)), started)
            return
        if self._lease is None or lease["metadata"]["resourceVersion"] != self._lease["metadata"]["resourceVersion"]:
            self._note(lease, self._clock.monotonic())
        if self._is_held_by_another(lease):
            return
        self._note(await self._client.update(self._claimed(lease, now)), started)

    def _note(self, lease: Obj, at: float) -> None:
        self._lease, self._seen_at = lease, at

    def _is_held_by_another(self, lease: Obj) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if not holder or holder == self.identity:
            return False
        lasts = float(spec.get("leaseDurationSeconds") or 0)
        return self._clock.monotonic() < self._seen_at + lasts

    def _claimed(self, lease: Obj | None, now: datetime) -> Obj:
        """The Lease as ours, at this moment."""
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
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {**spec, **claimed},
        }  # fmt: skip

    async def _release(self) -> None:
        """So that the next one need not wait. Not being able to is no failure: the Lease runs out by itself."""
        lease = self._lease
        if lease is None:
            return
        spec = self._claimed(lease, self._clock.now())["spec"]
        spec |= {"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": spec["renewTime"]}
        with suppress(ApiError, Unreachable):
            await self._client.update({**lease, "spec": spec})
        self._lease = None
