"""A component that works only while it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from setpoint.reconcile import LeaderElection, LeadershipLost, Manager

log = logging.getLogger("setpoint.cluster")


class Elected:
    """Each term begins with a fresh manager: what an earlier one knew may be out of date."""

    def __init__(
        self, election: LeaderElection | None, term: Callable[[], AbstractAsyncContextManager[Manager]]
    ) -> None:
        """`term` enters when the manager is ready. Without an election there is one term, and it never ends."""
        self.election = election
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
        return f"standing by as {self.election.identity}: another one leads"

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
        if self.election is None:
            await self._work()
            return
        while True:
            try:
                await self.election.lead(self._work)
            except LeadershipLost as error:
                log.warning("%s", error)

    async def _work(self) -> None:
        try:
            async with self._term() as manager:
                self.manager = manager
                self._working.set()
                await asyncio.Event().wait()
        finally:
            self.manager = None
            self._working.clear()
