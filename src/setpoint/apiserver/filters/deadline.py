"""How long a client will wait for its answer."""

from __future__ import annotations

from setpoint.apiserver.call import Call
from setpoint.meta.errors import BadRequest
from setpoint.meta.goformat import quote
from setpoint.meta.times import TimeError, parse_duration

LONG_RUNNING = frozenset({"attach", "exec", "log", "portforward", "proxy"})
"""Subresources that may last as long as they like: they take nobody's turn."""


_LONGEST = 256
"""Characters of a duration; Go has no such bound."""


def check_timeout(call: Call) -> None:
    """Refuses a `timeout` that is no duration, before it is asked who wants it. One that is, is not kept."""
    value = call.option("timeout")
    if not value or call.verb == "watch" or call.target.subresource in LONG_RUNNING:
        return
    try:
        if len(value) > _LONGEST:
            raise TimeError(f"time: invalid duration {quote(value[:_LONGEST])}")
        parse_duration(value)
    except TimeError as error:
        raise BadRequest(f"invalid timeout specified in the request URL - {error}") from None
