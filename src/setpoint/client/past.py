"""Reads of the past: transports below a path, which note the moment that a Setpoint API server shows there."""

from __future__ import annotations

from datetime import datetime

from setpoint.client.prefixed import PrefixedTransport
from setpoint.client.transport import Headers, Transport
from setpoint.meta.clock import Clock

_HEADER = "setpoint-at"
_PREFIX = "/at/"


class PastTransport(PrefixedTransport):
    """Sends requests to the read-only server of a moment, `/at/<when>/`."""

    def __init__(self, transport: Transport, prefix: str) -> None:
        super().__init__(transport, prefix)
        self.shown = ""
        """Revision and time of the moment, as the server has said; empty before the first response."""

    def note(self, headers: Headers) -> None:
        self.shown = next((value for name, value in headers if name.lower() == _HEADER), self.shown)

    @property
    def revision(self) -> int:
        """The revision of the moment; 0 before the first response."""
        text = self.shown.partition(";")[0]
        return int(text) if text.isascii() and text.isdigit() else 0

    @property
    def at(self) -> datetime | None:
        """When the revision was written; None if it is not known."""
        try:
            return datetime.fromisoformat(self.shown.partition("; ")[2])
        except ValueError:
            return None


class PastClock:
    """A clock whose wall-clock time is that of the moment, as soon as it is known: ages are those of then."""

    def __init__(self, clock: Clock, transport: PastTransport) -> None:
        self._clock = clock
        self._transport = transport
        self.monotonic = clock.monotonic
        self.sleep = clock.sleep

    def now(self) -> datetime:
        return self._transport.at or self._clock.now()


def logical_transport(transport: Transport, cluster: str) -> Transport:
    """Return a transport for the logical cluster with this path prefix; empty for the cluster itself."""
    if _PREFIX in cluster:
        return PastTransport(transport, cluster)
    return PrefixedTransport(transport, cluster) if cluster else transport


def clock_of(clock: Clock, transport: Transport) -> Clock:
    """Return the clock by which the objects behind a transport have ages."""
    return PastClock(clock, transport) if isinstance(transport, PastTransport) else clock
