"""Answers that are good for a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from setpoint.meta.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """A cache with a maximum size whose entries expire. The oldest entry is evicted first."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        known = self._kept.get(key)
        return known[1] if known is not None and known[0] > self._clock.monotonic() else None

    def keep(self, key: K, value: V, seconds: float) -> None:
        self._kept[key] = (self._clock.monotonic() + seconds, value)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        self._kept.clear()
