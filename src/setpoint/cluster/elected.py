"""A component that works only while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from setpoint.cluster.supervisor import Restarts
from setpoint.meta.exposition import Family, gauge
from setpoint.reconcile import LeaderElection, LeadershipLost, Manager

log = logging.getLogger("setpoint.cluster")


class Elected:
    """Each term begins with a fresh manager: what an earlier one knew may be out of date."""

    def __init__(
        self,
        election: LeaderElection | None,
        term: Callable[[], AbstractAsyncContextManager[Manager]],
        restarts: Restarts | None = None,
    ) -> None:
        """`term` enters when the manager is ready. Without an election there is one term, and it never ends. With
        `restarts`, a term that fails is followed by another; without, its error ends `run`."""
        self.election = election
        self._restarts = restarts
        self.manager: Manager | None = None
        """Of the term that runs now."""
        self._term = term
        self._working = asyncio.Event()

    @property
    def state(self) -> str:
        """For people."""
        if self.election is None:
            return "at work"
        if self.election.leading.is_set():
            return f"leading as {self.election.identity}"
        why = "another one leads" if self.election.holder else "the lease cannot be had"
        return f"standing by as {self.election.identity}: {why}"

    def families(self) -> list[Family]:
        """What the manager of this term measures, and whether there is one."""
        if self.manager is None and self.election is None:
            return []
        leads = [] if self.election is None else [({"name": self.election.name}, int(self.manager is not None))]
        return [
            gauge("leader_election_master_status", "1 for the one that leads, 0 for one that stands by.", leads),
            *(self.manager.families() if self.manager is not None else ()),
        ]

    def trouble(self) -> str:
        """What is wrong, for a health check: it has failed, or holds the Lease and has not renewed it for too long."""
        if self._restarts is not None and self._restarts.trouble:
            return self._restarts.trouble
        if self.election is None or self.election.overdue <= 0:
            return ""
        return f"failed election to renew leadership on lease {self.election.name}"

    async def settled(self) -> None:
        """Until it is at work, or it is clear that another is."""
        waits = [asyncio.ensure_future(self._working.wait())]
        if self.election is not None:
            waits.append(asyncio.ensure_future(self.election.standing_by.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self.election is None:
                    await self._work()
                else:
                    await self.election.lead(self._work)
            except LeadershipLost as error:
                log.warning("%s", error)
            except Exception as error:
                if self._restarts is None:
                    raise
                await self._restarts.pause(self._restarts.failed(error))

    async def _work(self) -> None:
        if self._restarts is not None:
            self._restarts.begun()
        try:
            async with self._term() as manager:
                if self._restarts is not None:
                    self._restarts.ready()
                self.manager = manager
                self._working.set()
                await asyncio.Event().wait()
        finally:
            self.manager = None
            self._working.clear()
