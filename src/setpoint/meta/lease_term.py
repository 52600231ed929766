"""Fencing of writes by the term of a leader.

A component that was suspended for a while (a paused process, a closed laptop) continues where it stopped, although
another one holds the lease by then. Two checks prevent its writes. The client checks its fence before each write: it
refuses if the lease was not renewed in time. And each write carries the lease and its term in a header; a Setpoint API
server commits it only if that term still holds the lease. Other servers ignore the header.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, Protocol
from urllib.parse import quote, unquote

from setpoint.meta.caching import memoized

TERM_HEADER = "setpoint-lease"


class Term(NamedTuple):
    """One holder's uninterrupted tenure of a Lease."""

    namespace: str
    name: str
    holder: str
    transitions: int
    """The Lease's leaseTransitions: it grows whenever the holder changes."""

    def __str__(self) -> str:
        return _text(self)


@lru_cache(maxsize=64)
def _text(term: Term) -> str:
    return f"{term.namespace}/{term.name}/{term.transitions}/{quote(term.holder, safe='')}"


@memoized(maxsize=64)
def parse_term(text: str) -> Term:
    """Parse the value of the header. Raises ValueError."""
    namespace, name, transitions, holder = text.split("/")
    if not (namespace and name and holder and transitions.isdecimal() and len(transitions) < 20):
        raise ValueError("not a term of a lease")
    return Term(namespace, name, unquote(holder), int(transitions))


class Fence(Protocol):
    def term(self) -> Term:
        """Return the term that a write belongs to which is sent now. Raises Conflict if it must not be sent."""
        ...
