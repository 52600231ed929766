"""How the seats of a server are shared between levels that ask for more, or less, than what is theirs by right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_LEAST = 0.001
"""Somebody who asks for nothing still takes part in what is left over."""


class Claim(NamedTuple):
    wanted: float
    least: float
    most: float


def allocate(total: float, claims: Sequence[Claim]) -> list[float]:
    """The same proportion of what each wants, within its bounds, so that the sum is `total` (or as near to it as the
    bounds permit)."""
    if total <= sum(claim.least for claim in claims):
        return [claim.least for claim in claims]
    if total >= sum(claim.most for claim in claims):
        return [claim.most for claim in claims]

    def given(proportion: float) -> list[float]:
        return [max(each.least, min(each.most, proportion * max(each.wanted, _LEAST))) for each in claims]

    # The sum grows with the proportion, in straight lines between the points at which somebody meets a bound.
    bounds = sorted({bound / max(each.wanted, _LEAST) for each in claims for bound in (each.least, each.most)})
    low, at_low = 0.0, sum(given(0.0))
    for high in bounds:
        at_high = sum(given(high))
        if at_high >= total:
            if at_high > at_low:
                low += (high - low) * (total - at_low) / (at_high - at_low)
            return given(low)
        low, at_low = high, at_high
    return given(low)


class Demand:
    """How many seats were asked for over a while: the most, and what is usual."""

    __slots__ = ("_area", "_began", "_last", "_squares", "most", "now", "smoothed")

    def __init__(self, now: float) -> None:
        self._began = self._last = now
        self.now = 0
        self._area = self._squares = 0.0
        self.most = 0
        self.smoothed = 0.0

    def changed(self, now: float, seats: int) -> None:
        passed = now - self._last
        if passed > 0:
            self._area += self.now * passed
            self._squares += self.now * self.now * passed
            self._last = now
        self.now = seats
        if seats > self.most:
            self.most = seats

    def look(self, now: float) -> tuple[int, float]:
        """The most, and a smoothed mean with a deviation on top, since the last look; counting begins anew."""
        self.changed(now, self.now)
        most, passed = self.most, now - self._began
        if passed > 0:
            mean = self._area / passed
            envelope = mean + max(0.0, self._squares / passed - mean * mean) ** 0.5
            self.smoothed = max(envelope, _SMOOTHING * self.smoothed + (1 - _SMOOTHING) * envelope)
        self._began, self._area, self._squares, self.most = now, 0.0, 0.0, self.now
        return most, self.smoothed


_SMOOTHING = 0.977
