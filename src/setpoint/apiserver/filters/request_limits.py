"""Limits on requests: the number in flight, reads and writes separately, and the timeout parameter."""

from __future__ import annotations

from setpoint.apiserver.request_context import RequestContext
from setpoint.meta.errors import BadRequest, TooManyRequests
from setpoint.meta.goformat import quote
from setpoint.meta.times import TimeError, parse_duration

_READS = frozenset({"get", "list"})
LONG_RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""Subresources whose requests may last arbitrarily long and hold no seat."""
_MAX_DURATION_LENGTH = 256
"""Maximum length of a duration; Go has no limit."""


class Overloaded(TooManyRequests):
    """The request was rejected before it was processed, and may be retried. The response is plain text, as
    upstream's."""

    @classmethod
    def until(cls, seconds: int) -> Overloaded:
        """Return the error with a Retry-After of so many seconds."""
        return cls("Too many requests, please try again later.", details={"retryAfterSeconds": seconds})


class InFlight:
    """Limits the number of concurrent reads and writes; watches are not limited."""

    def __init__(self, reads: int = 400, writes: int = 200) -> None:
        self.limits = {True: reads, False: writes}
        self.now = {True: 0, False: 0}

    def enter(self, verb: str) -> bool | None:
        """Count the request. Return whether it is a read, which `leave` needs, or None if it is not limited. Raises
        Overloaded if the limit is reached."""
        if verb == "watch":
            return None
        reading = verb in _READS
        limit = self.limits[reading]
        if limit and self.now[reading] >= limit:
            raise Overloaded.until(1)
        self.now[reading] += 1
        return reading

    def leave(self, reading: bool | None) -> None:
        if reading is not None:
            self.now[reading] -= 1


def check_timeout(ctx: RequestContext) -> None:
    """Refuse an invalid `timeout` parameter, before authentication. A valid one is not enforced."""
    value = ctx.option("timeout")
    if not value or ctx.verb == "watch" or ctx.target.subresource in LONG_RUNNING:
        return
    try:
        if len(value) > _MAX_DURATION_LENGTH:
            raise TimeError(f"time: invalid duration {quote(value[:_MAX_DURATION_LENGTH])}")
        parse_duration(value)
    except TimeError as error:
        raise BadRequest(f"invalid timeout specified in the request URL - {error}") from None
