"""Remembers which clients watch which resources.

A client that names no trigger of its writes acts, if it is a controller, on what its watches report. And an object that
no client watches has no controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from setpoint.meta.clock import Clock
from setpoint.meta.times import unix_milliseconds

_MAX_ENTRIES = 4096
"""Maximum number of remembered combinations of client and resource."""


class Watching(NamedTuple):
    user: str
    agent: str
    """The first product of the User-Agent."""
    prefix: str
    """The prefix of the resource in the store: `apps/deployments/`."""


class WatchPeriod:
    """The time in which a client watches a resource: from the first block with it to the end of the last one."""

    __slots__ = ("_now", "ended", "open", "since")

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.since = since = now()
        """When the first watch began, in milliseconds since the epoch."""
        self.ended = since
        """When the last watch ended, unless one is open."""
        self.open = 0
        """The number of open watches."""

    def __enter__(self) -> None:
        self.open += 1

    def __exit__(self, *_: object) -> None:
        self.open -= 1
        self.ended = self._now()


class Watchers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: dict[Watching, WatchPeriod] = {}

    def watching(self, user: str, agent: str, prefix: str) -> WatchPeriod:
        """Remember a watch, which is open in the block of the result."""
        client = Watching(user, agent, prefix)
        period = self._periods.get(client)
        if period is None:
            if len(self._periods) >= _MAX_ENTRIES:
                self._drop()
            period = self._periods[client] = WatchPeriod(self._now)
        return period

    def of_client(self, user: str, agent: str, at: int) -> list[str]:
        """Return the prefixes of the resources that a client watched at a time in milliseconds since the epoch."""
        return [
            client.prefix
            for client, period in self._periods.items()
            if client[:2] == (user, agent) and period.since <= at and (period.open or period.ended >= at)
        ]

    def of_resource(self, prefix: str, since: int) -> list[tuple[Watching, int]]:
        """Return the clients that watch a resource, or have done so since a time, each with the time at which its last
        watch ended; 0 if one is open."""
        return [
            (client, 0 if period.open else period.ended)
            for client, period in self._periods.items()
            if client.prefix == prefix and (period.open or period.ended >= since)
        ]

    def _drop(self) -> None:
        """Forget the client whose watch ended first; one with an open watch only if there is no other."""
        oldest = min(self._periods.items(), key=lambda each: (each[1].open > 0, each[1].ended))
        del self._periods[oldest[0]]

    def _now(self) -> int:
        return unix_milliseconds(self._clock.now())
