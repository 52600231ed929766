"""Which events are worth writing: the same again is counted, many alike become one, and a flood ends in a trickle.

A ReplicaSet that makes two thousand Pods has one thing to say, not two thousand.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from setpoint.meta.clock import Clock

_REMEMBERED = 4096
_ALIKE = 10
"""So many different messages of one reason about one object stay apart; further ones are combined."""
_ALIKE_WITHIN = 600.0
_BURST = 25
_REFILL = 1 / 300
"""Events about one object a second, once its burst is used up."""
COMBINED = "(combined from similar events): "

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V], Generic[K, V]):
    """Forgets what was not used for longest, beyond a bound."""

    def used(self, key: K) -> V | None:
        found = self.get(key)
        if found is not None:
            self.move_to_end(key)
        return found

    def keep(self, key: K, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)

    def drop(self, stale: Callable[[V], bool]) -> None:
        """Forget those that were not used for longest, as far as they are stale."""
        while self and stale(next(iter(self.values()))):
            self.popitem(last=False)


class Said(NamedTuple):
    """What tells events apart."""

    source: tuple[str, str]
    about: tuple[str, ...]
    """Kind, namespace, name, uid, apiVersion."""
    field_path: str
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class Written:
    """An event that was written, or is about to be."""

    name: str
    first: str
    count: int = 0
    stored: bool = False


@dataclass(slots=True)
class _Alike:
    at: float
    messages: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Tokens:
    at: float
    left: float = _BURST


class Correlator:
    """Its state is a help, no truth: a restart begins anew, and events are counted from one again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alike: Recent[tuple[object, ...], _Alike] = Recent()
        self._written: Recent[object, Written] = Recent()
        self._tokens: Recent[tuple[object, ...], _Tokens] = Recent()

    def take(self, said: Said, name: str, stamp: str) -> tuple[Written, str] | None:
        """The event that this adds to (a new one has a count of 1) and the message to write; None if it is one too
        many. `name` and `stamp` are for a new one."""
        now = self._clock.monotonic()
        self._alike.drop(lambda each: now - each.at > _ALIKE_WITHIN)
        self._tokens.drop(lambda each: each.left + (now - each.at) * _REFILL >= _BURST)
        key, message = self._combined(said, now)
        written = self._written.used(key)
        if written is None:
            written = Written(name, stamp)
            self._written.keep(key, written)
        written.count += 1
        return (written, message) if self._may_pass(said, now) else None

    def forget(self, said: Said) -> None:
        """It could not be written, or is there no more: the next one is new."""
        self._written.pop(said, None)
        self._written.pop(_alike_key(said), None)

    def _combined(self, said: Said, now: float) -> tuple[object, str]:
        key = _alike_key(said)
        alike = self._alike.used(key)
        if alike is None or now - alike.at > _ALIKE_WITHIN:
            alike = _Alike(now)
            self._alike.keep(key, alike)
        alike.at = now
        alike.messages[said.message] = None
        if len(alike.messages) < _ALIKE:
            return said, said.message
        del alike.messages[next(iter(alike.messages))]
        return key, COMBINED + said.message

    def _may_pass(self, said: Said, now: float) -> bool:
        key = (said.source, said.about, said.type)
        tokens = self._tokens.used(key)
        if tokens is None:
            tokens = _Tokens(now)
            self._tokens.keep(key, tokens)
        tokens.left = min(_BURST, tokens.left + (now - tokens.at) * _REFILL)
        tokens.at = now
        if tokens.left < 1:
            return False
        tokens.left -= 1
        return True


def _alike_key(said: Said) -> tuple[object, ...]:
    return ("alike", said.source, said.about, said.field_path, said.type, said.reason)
