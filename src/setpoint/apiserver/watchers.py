"""Remembers which clients watch which resources.

A client that names no trigger of its writes acts, if it is a controller, on what its watches report. And an object that
no client watches has no controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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


class _Period:
    __slots__ = ("ended", "open", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        """When the first watch began, in milliseconds since the epoch."""
        self.ended = since
        """When the last watch ended, unless one is open."""
        self.open = 0
        """The number of open watches."""


class Watchers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: dict[Watching, _Period] = {}

    @contextmanager
    def watching(self, user: str, agent: str, prefix: str) -> Iterator[None]:
        """Remember a watch, which is open inside the block."""
        client = Watching(user, agent, prefix)
        period = self._periods.get(client)
        if period is None:
            if len(self._periods) >= _MAX_ENTRIES:
                self._drop()
            period = self._periods[client] = _Period(self._now())
        period.open += 1
        try:
            yield
        finally:
            period.open -= 1
            period.ended = self._now()

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
