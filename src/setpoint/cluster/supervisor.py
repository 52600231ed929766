"""Restarts components that have failed, with exponential backoff.

A component is a loop that should never end. An exception is a bug in it, and no reason to end the process with all
other components: it is logged with its traceback, and the component is restarted after a delay. The delay doubles with
each failure up to a limit, and is reset once the component has run for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Family, counter
from setpoint.store.interface import StoreError
from setpoint.tasks import within

log = logging.getLogger("setpoint.cluster")

INITIAL_BACKOFF, MAX_BACKOFF = 1.0, 60.0
"""Seconds before the first restart, and at most."""
HEALTHY_AFTER = 120.0
"""Seconds without a failure after which the backoff is reset."""


class Restarts:
    """The failures and the backoff of one component."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.count = 0
        """The number of failures so far."""
        self.error = ""
        """Why the component is not running, for users and health checks; empty while it runs."""
        self._clock = clock
        self._started_at = clock.monotonic()
        self._backoff = 0.0

    def starting(self) -> None:
        """Record that the component starts, for the first time or again."""
        self._started_at = self._clock.monotonic()

    def ready(self) -> None:
        """Record that the component runs."""
        self.error = ""

    def failed(self, error: BaseException) -> float:
        """Record and log a failure, and return the seconds to wait before the restart."""
        ran = self._clock.monotonic() - self._started_at
        is_first = not self._backoff or ran >= HEALTHY_AFTER
        self._backoff = INITIAL_BACKOFF if is_first else min(self._backoff * 2, MAX_BACKOFF)
        self.count += 1
        self.error = f"failed with {_summary(error)}; restarting in {self._backoff:g} s"
        is_explained = isinstance(error, StoreError)  # its message needs no traceback
        log.error("%s %s", self.name, self.error, exc_info=None if is_explained else error)
        return self._backoff

    async def pause(self, seconds: float, stop: asyncio.Event | None = None) -> None:
        """Wait for `seconds`, or until `stop` is set."""
        if stop is None:
            await self._clock.sleep(seconds)
            return
        with suppress(TimeoutError):
            await within(self._clock, seconds, stop.wait())


class Supervisor:
    """The restarts of all components of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._restarts: dict[str, Restarts] = {}

    def restarts(self, name: str) -> Restarts:
        """Return the restarts of the component with this name; the first call creates them."""
        found = self._restarts.get(name)
        if found is None:
            found = self._restarts[name] = Restarts(name, self._clock)
        return found

    async def run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work`, and again after each failure, until it returns or is cancelled."""
        restarts = self.restarts(name)
        while True:
            restarts.starting()
            try:
                await work()
                return
            except Exception as error:
                backoff = restarts.failed(error)
            await restarts.pause(backoff)
            restarts.ready()

    def errors(self) -> Iterator[tuple[str, str]]:
        """Return the names of the components that are not running, each with its error."""
        return ((each.name, each.error) for each in self._restarts.values() if each.error)

    def families(self) -> list[Family]:
        series = (({"name": each.name}, each.count) for each in self._restarts.values())
        return [counter("setpoint_component_restarts_total", "Failures of components that were restarted.", series)]


def _summary(error: BaseException) -> str:
    """Return type and message of the error, or of the first one in an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
