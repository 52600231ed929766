"""Restarts what has failed, with back-off, and says what is wrong meanwhile.

A component is a loop that should never end. If one raises nevertheless, that is a bug in it, and no reason to end the
process with all the others: it is logged with its traceback and begins anew after a pause, which doubles with each
failure up to a limit, and starts over once the component has run well for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Family, counter
from setpoint.store.interface import StoreError

log = logging.getLogger("setpoint.cluster")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
HEALTHY_AFTER = 120.0
"""Seconds without a failure after which the next pause is the first one again."""


class Restarts:
    """The failures of one component."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.count = 0
        """How often it has failed."""
        self.trouble = ""
        """Why it does not run now, for people and health checks; empty while it does."""
        self._clock = clock
        self._begun = clock.monotonic()
        self._pause = 0.0

    def begun(self) -> None:
        """It starts, for the first time or again."""
        self._begun = self._clock.monotonic()

    def ready(self) -> None:
        """It is at work."""
        self.trouble = ""

    def failed(self, error: BaseException) -> float:
        """Return for how many seconds to wait before it begins anew."""
        ran = self._clock.monotonic() - self._begun
        fresh = not self._pause or ran >= HEALTHY_AFTER
        self._pause = FIRST_PAUSE if fresh else min(self._pause * 2, LONGEST_PAUSE)
        self.count += 1
        self.trouble = f"failed with {_explained(error)}; starts again after {self._pause:g} s"
        known = isinstance(error, StoreError)  # says all there is to say
        log.error("%s %s", self.name, self.trouble, exc_info=None if known else error)
        return self._pause

    async def pause(self, seconds: float, stop: asyncio.Event | None = None) -> None:
        """Wait, or until somebody wants it to stop."""
        if stop is None:
            await self._clock.sleep(seconds)
            return
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(stop.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*waits, return_exceptions=True)


class Supervisor:
    """All that is restarted in one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._restarts: dict[str, Restarts] = {}

    def restarts(self, name: str) -> Restarts:
        """Those of the component with this name, from its first mention on."""
        found = self._restarts.get(name)
        if found is None:
            found = self._restarts[name] = Restarts(name, self._clock)
        return found

    async def run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work until it ends by itself or is cancelled, however often it fails."""
        restarts = self.restarts(name)
        while True:
            restarts.begun()
            try:
                await work()
                return
            except Exception as error:
                pause = restarts.failed(error)
            await restarts.pause(pause)
            restarts.ready()

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Names of those that do not run now, and why."""
        return ((each.name, each.trouble) for each in self._restarts.values() if each.trouble)

    def families(self) -> list[Family]:
        series = (({"name": each.name}, each.count) for each in self._restarts.values())
        return [counter("setpoint_component_restarts_total", "Failures of components that were restarted.", series)]


def _explained(error: BaseException) -> str:
    """The first cause in a group of errors, in a few words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
