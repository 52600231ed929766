"""Priority levels: their seats, lending and borrowing between them, and the Retry-After of rejected requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import ceil
from typing import NamedTuple

from setpoint.apiserver.fairness.queues import Queues
from setpoint.meta.objects import ObjView

_MIN_TARGET_SEATS = 0.001
"""Lower bound of a level's target, so that a level without demand shares in the remaining seats."""
_SMOOTHING = 0.977
_MAX_RETRY_AFTER = 32
_MAX_WIDTH_FRACTION = 0.15
"""Maximum fraction of a level's seats that one request may need."""


class SeatClaim(NamedTuple):
    """The seats that a level should get, and its bounds."""

    target: float
    minimum: float
    maximum: float


def allocate(total: float, claims: Sequence[SeatClaim]) -> list[float]:
    """Return the seats of each claim: the same proportion of each target, within the bounds, so that the sum is `total`
    or as close to it as the bounds permit."""
    if total <= sum(claim.minimum for claim in claims):
        return [claim.minimum for claim in claims]
    if total >= sum(claim.maximum for claim in claims):
        return [claim.maximum for claim in claims]

    def allocated(proportion: float) -> list[float]:
        return [
            max(each.minimum, min(each.maximum, proportion * max(each.target, _MIN_TARGET_SEATS))) for each in claims
        ]

    # The sum is a piecewise linear function of the proportion, with a breakpoint wherever a claim reaches a bound.
    bounds = sorted(
        {bound / max(each.target, _MIN_TARGET_SEATS) for each in claims for bound in (each.minimum, each.maximum)}
    )
    low, at_low = 0.0, sum(allocated(0.0))
    for high in bounds:
        at_high = sum(allocated(high))
        if at_high >= total:
            if at_high > at_low:
                low += (high - low) * (total - at_low) / (at_high - at_low)
            return allocated(low)
        low, at_low = high, at_high
    return allocated(low)


class SeatDemand:
    """The number of seats that a level needed over time: its maximum and its smoothed average."""

    __slots__ = ("_area", "_last", "_period_start", "_squares", "current", "high_watermark", "smoothed")

    def __init__(self, now: float) -> None:
        self._period_start = self._last = now
        self.current = 0
        self._area = self._squares = 0.0
        self.high_watermark = 0
        self.smoothed = 0.0

    def update(self, now: float, seats: int) -> None:
        elapsed = now - self._last
        if elapsed > 0:
            self._area += self.current * elapsed
            self._squares += self.current * self.current * elapsed
            self._last = now
        self.current = seats
        if seats > self.high_watermark:
            self.high_watermark = seats

    def collect(self, now: float) -> tuple[int, float]:
        """Return the maximum and the smoothed average plus one standard deviation since the last call, and start a new
        period."""
        self.update(now, self.current)
        high_watermark, elapsed = self.high_watermark, now - self._period_start
        if elapsed > 0:
            mean = self._area / elapsed
            envelope = mean + max(0.0, self._squares / elapsed - mean * mean) ** 0.5
            self.smoothed = max(envelope, _SMOOTHING * self.smoothed + (1 - _SMOOTHING) * envelope)
        self._period_start, self._area, self._squares, self.high_watermark = now, 0.0, 0.0, self.current
        return high_watermark, self.smoothed


class DroppedRequestsTracker:
    """Computes Retry-After from the number of rejected requests of one level in the last seconds."""

    def __init__(self) -> None:
        self.retry_after = 1
        self._history: deque[tuple[int, int]] = deque(maxlen=_MAX_RETRY_AFTER + 1)
        self._second = 0
        self._count = 0
        self._doubled = 0

    def record(self, second: int) -> int:
        """Count a rejected request and return its Retry-After in seconds."""
        if second == self._second:
            self._count += 1
            return self.retry_after
        self._history.append((self._second, self._count))
        self._second, self._count = second, 1
        recent = sum(count for then, count in self._history if 0 < second - then <= self.retry_after)
        if second - self._doubled >= self.retry_after and recent >= 3 * self.retry_after:
            self.retry_after = min(2 * self.retry_after, _MAX_RETRY_AFTER)
            self._doubled = second
        elif recent < self.retry_after and self.retry_after > 1:
            self.retry_after -= 1
        return self.retry_after


class Level:
    """A priority level."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.exempt = False
        self.queues = Queues()
        self.demand = SeatDemand(now)
        self.shares = 0
        self.nominal = 0
        """Number of seats by the level's own share."""
        self.lower_limit = self.upper_limit = 0
        """Bounds of the number of seats, after lending and borrowing."""
        self.max_seats_per_request = 0
        """Maximum number of seats of one request; 0 means no limit."""
        self.executing = 0
        self.dispatched: dict[str, list[int]] = {}
        """Number of executed requests by flow schema, each in a list of length one that its flows share."""
        self.rejected: dict[tuple[str, str], int] = {}
        """Number of rejected requests by flow schema and reason."""

    def configure(self, spec: ObjView) -> None:
        """Apply the configuration, except for the seats, which depend on the other levels."""
        self.exempt = spec["type"] == "Exempt"
        limits = spec.get("exempt" if self.exempt else "limited") or {}
        self.shares = limits.get("nominalConcurrencyShares", 0 if self.exempt else 30)
        self._lendable_percent = limits.get("lendablePercent") or 0
        self._borrowing_percent = limits.get("borrowingLimitPercent")
        queuing = (limits.get("limitResponse") or {}).get("queuing") or {}
        self._hand_size = queuing.get("handSize", 0)
        self.queues.configure(queuing.get("queues", 0), queuing.get("queueLengthLimit", 0), self._hand_size)

    def set_limits(self, total: int, shares: int) -> None:
        """Compute the nominal seats and their bounds from the shares of all levels; `lend_seats` sets the current
        limit."""
        nominal = ceil(total * self.shares / shares) if shares else 0
        lendable = round(nominal * self._lendable_percent / 100)
        borrowing = total if self._borrowing_percent is None else round(nominal * self._borrowing_percent / 100)
        self.nominal, self.lower_limit, self.upper_limit = nominal, nominal - lendable, nominal + borrowing
        self.max_seats_per_request = (
            max(1, min(ceil(nominal * _MAX_WIDTH_FRACTION), nominal // self._hand_size)) if self._hand_size else 0
        )

    def seats_changed(self, now: float) -> None:
        """Update the demand. Demands of at most one seat are ignored: most requests finish before the next one
        arrives."""
        demand = self.queues.in_use + self.queues.seats_waiting
        if demand > 1 or self.demand.current > 1:
            self.demand.update(now, demand)

    def reject(self, schema: str, reason: str) -> None:
        key = (schema, reason)
        self.rejected[key] = self.rejected.get(key, 0) + 1


def lend_seats(levels: Iterable[Level], now: float) -> None:
    """Set the limits of the levels: unused seats go to levels with more demand, within the limits of lending and
    borrowing."""
    limited: list[tuple[Level, int, float]] = []
    total = available = minimum = needed_total = 0
    for level in levels:
        total += level.nominal
        high_watermark, smoothed = level.demand.collect(now)
        if level.exempt:
            level.queues.limit = max(level.lower_limit, high_watermark)
            available -= level.queues.limit
            continue
        needed = max(level.lower_limit, min(level.nominal, high_watermark))
        limited.append((level, needed, smoothed))
        minimum += level.lower_limit
        needed_total += needed
    available += total
    if available <= minimum:
        for level, _, _ in limited:
            level.queues.limit = level.lower_limit
    elif available <= needed_total:
        fraction = (available - minimum) / (needed_total - minimum)
        for level, needed, _ in limited:
            level.queues.limit = level.lower_limit + round((needed - level.lower_limit) * fraction)
    else:
        claims = [SeatClaim(max(needed, smoothed), needed, level.upper_limit) for level, needed, smoothed in limited]
        for (level, _, _), seats in zip(limited, allocate(total, claims), strict=True):
            level.queues.limit = round(seats)
