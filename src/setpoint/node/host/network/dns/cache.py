"""A bounded cache of answers of other name servers."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.host.network.dns.message import (
    NOERROR,
    NXDOMAIN,
    SOA,
    Message,
    Name,
    Record,
    negative_ttl,
)

MAX_TTL: Final = 30
"""The seconds for which an answer is cached at most, whatever its records permit."""
_FAILURE_TTL: Final = 1
"""The seconds for which a failure is cached, so that repeated queries do not cause repeated work (RFC 9520)."""
_MAX_ENTRIES: Final = 10_000
_MAX_OCTETS: Final = 4 << 20

CacheKey = tuple[Name, int]
"""A lower-case name and a type."""


class _Entry(NamedTuple):
    message: Message
    expires: float
    size: int


class AnswerCache:
    """Drops the answers that were not used for the longest time when it is full."""

    def __init__(self, clock: Clock, max_entries: int = _MAX_ENTRIES, max_octets: int = _MAX_OCTETS) -> None:
        self._clock = clock
        self._max_entries, self._max_octets = max_entries, max_octets
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._octets = 0
        """The sum of the sizes of the answers, as they were received."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CacheKey) -> Message | None:
        """Return an answer whose records have the TTL that is left, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        left = found.expires - self._clock.monotonic()
        if left <= 0:
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return _with_ttl(found.message, int(left) or 1)

    def put(self, key: CacheKey, message: Message, size: int) -> Message:
        """Store an answer of `size` octets if it may be cached. Return it with TTLs of at most 30 seconds."""
        ttl = _ttl(message)
        if key in self._entries:
            self._remove(key)
        if ttl > 0 and size <= self._max_octets:
            self._entries[key] = _Entry(message, self._clock.monotonic() + ttl, size)
            self._octets += size
            while len(self._entries) > self._max_entries or self._octets > self._max_octets:
                self._remove(next(iter(self._entries)))
        return _with_ttl(message, ttl)

    def clear(self) -> None:
        self._entries.clear()
        self._octets = 0

    def _remove(self, key: CacheKey) -> None:
        self._octets -= self._entries.pop(key).size


def _with_ttl(message: Message, ttl: int) -> Message:
    answers, authority, additional = (
        [record._replace(ttl=ttl) for record in section]
        for section in (message.answers, message.authority, message.additional)
    )
    return Message(message.id, message.flags, message.questions, answers, authority, additional)


def _ttl(message: Message) -> int:
    """Return the seconds for which an answer may be cached."""
    if message.rcode not in (NOERROR, NXDOMAIN):
        return _FAILURE_TTL
    question = message.questions[0]
    if message.rcode == NXDOMAIN or not any(record.type == question.type for record in message.answers):
        found = next((record for record in message.authority if record.type == SOA), None)
        if found is None and not message.answers:
            return 0
        negative = negative_ttl(found) if found is not None else MAX_TTL
        return min(MAX_TTL, negative, *_ttls(message.answers))
    return min((MAX_TTL, *_ttls(message.answers), *_ttls(message.authority)))


def _ttls(records: Sequence[Record]) -> list[int]:
    # A TTL with the highest bit set counts as zero (RFC 2181).
    return [record.ttl if record.ttl < 1 << 31 else 0 for record in records]
