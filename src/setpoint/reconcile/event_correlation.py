"""Decides which Events are written: repeated ones are counted, similar ones are aggregated, floods are rate-limited.

A ReplicaSet that creates two thousand Pods needs a few Events, not two thousand.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from setpoint.meta.clock import Clock

_MAX_ENTRIES = 4096
_MAX_SIMILAR = 10
"""Distinct messages with one reason about one object that stay separate; further ones are aggregated."""
_AGGREGATION_SECONDS = 600.0
_BURST = 25
_REFILL = 1 / 300
"""Events per second about one object once its burst is used up."""
COMBINED = "(combined from similar events): "

K = TypeVar("K")
V = TypeVar("V")


class LruCache(OrderedDict[K, V], Generic[K, V]):
    """A bounded map that evicts the least recently used entry."""

    def lookup(self, key: K) -> V | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _MAX_ENTRIES:
            self.popitem(last=False)

    def evict(self, stale: Callable[[V], bool]) -> None:
        """Evict the least recently used entries for as long as they are stale."""
        while self and stale(next(iter(self.values()))):
            self.popitem(last=False)


class EventIdentity(NamedTuple):
    """The fields by which Events are compared."""

    source: tuple[str, str]
    about: tuple[str, ...]
    """Kind, namespace, name, uid and apiVersion of the involved object."""
    field_path: str
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class EventState:
    """The state of an Event that was written or is about to be written."""

    name: str
    first: str
    count: int = 0
    stored: bool = False


@dataclass(slots=True)
class _Aggregate:
    at: float
    messages: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Tokens:
    at: float
    left: float = _BURST


class Correlator:
    """Counts, aggregates and rate-limits Events.

    The state is kept in memory only: after a restart, Events are counted from 1 again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._aggregates: LruCache[tuple[object, ...], _Aggregate] = LruCache()
        self._states: LruCache[object, EventState] = LruCache()
        self._tokens: LruCache[tuple[object, ...], _Tokens] = LruCache()

    def correlate(self, identity: EventIdentity, name: str, stamp: str) -> tuple[EventState, str] | None:
        """Return the Event to write and its message, or None if it exceeds the rate limit.

        A new Event has a count of 1 and gets `name` and `stamp`.
        """
        now = self._clock.monotonic()
        self._aggregates.evict(lambda each: now - each.at > _AGGREGATION_SECONDS)
        self._tokens.evict(lambda each: each.left + (now - each.at) * _REFILL >= _BURST)
        key, message = self._aggregated(identity, now)
        state = self._states.lookup(key)
        if state is None:
            state = EventState(name, stamp)
            self._states.put(key, state)
        state.count += 1
        return (state, message) if self._is_within_rate(identity, now) else None

    def forget(self, identity: EventIdentity) -> None:
        """Forget an Event that could not be written or no longer exists, so that the next occurrence creates a new
        one."""
        self._states.pop(identity, None)
        self._states.pop(_aggregate_key(identity), None)

    def _aggregated(self, identity: EventIdentity, now: float) -> tuple[object, str]:
        key = _aggregate_key(identity)
        aggregate = self._aggregates.lookup(key)
        if aggregate is None or now - aggregate.at > _AGGREGATION_SECONDS:
            aggregate = _Aggregate(now)
            self._aggregates.put(key, aggregate)
        aggregate.at = now
        aggregate.messages[identity.message] = None
        if len(aggregate.messages) < _MAX_SIMILAR:
            return identity, identity.message
        del aggregate.messages[next(iter(aggregate.messages))]
        return key, COMBINED + identity.message

    def _is_within_rate(self, identity: EventIdentity, now: float) -> bool:
        key = (identity.source, identity.about, identity.type)
        tokens = self._tokens.lookup(key)
        if tokens is None:
            tokens = _Tokens(now)
            self._tokens.put(key, tokens)
        tokens.left = min(_BURST, tokens.left + (now - tokens.at) * _REFILL)
        tokens.at = now
        if tokens.left < 1:
            return False
        tokens.left -= 1
        return True


def _aggregate_key(identity: EventIdentity) -> tuple[object, ...]:
    return ("aggregate", identity.source, identity.about, identity.field_path, identity.type, identity.reason)
