"""Bounded caches: memoized functions of short texts, and entries that expire."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast

from setpoint.meta.clock import Clock

P = ParamSpec("P")
R = TypeVar("R")

MAX_MEMOIZED_LENGTH = 512
"""Maximum length of a memoized text: caching thousands of longer ones would let clients fill the memory."""


def memoized(
    maxsize: int,
) -> Callable[[Callable[Concatenate[str, P], R]], Callable[Concatenate[str, P], R]]:
    """Return an `lru_cache` decorator for a pure function whose first argument is a text that clients choose."""

    def decorate(function: Callable[Concatenate[str, P], R]) -> Callable[Concatenate[str, P], R]:
        cached = cast(Callable[Concatenate[str, P], R], lru_cache(maxsize=maxsize)(function))

        def call_alone(text: str) -> R:
            return cached(text) if len(text) <= MAX_MEMOIZED_LENGTH else function(text)  # type: ignore[call-arg]

        def call(text: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return (
                cached(text, *args, **kwargs) if len(text) <= MAX_MEMOIZED_LENGTH else function(text, *args, **kwargs)
            )

        # Most functions have one argument and are called many times per request; passing on others doubles the time.
        chosen = cast(Callable[Concatenate[str, P], R], call_alone) if function.__code__.co_argcount == 1 else call
        chosen.__doc__, chosen.__name__ = function.__doc__, function.__name__
        return chosen

    return decorate


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """A cache with a maximum size whose entries expire. The oldest entry is evicted first."""

    def __init__(self, max_size: int, clock: Clock) -> None:
        self._max_size = max_size
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        known = self._entries.get(key)
        return known[1] if known is not None and known[0] > self._clock.monotonic() else None

    def put(self, key: K, value: V, seconds: float) -> None:
        self._entries[key] = (self._clock.monotonic() + seconds, value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_size:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()
