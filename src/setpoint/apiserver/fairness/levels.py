"""Priority levels: how many seats each has, who sits there, and who lends to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from setpoint.apiserver.fairness.allocation import Claim, Demand, allocate
from setpoint.apiserver.fairness.queues import Queues

Obj = Mapping[str, Any]
_WIDEST = 0.15
"""No request takes more than this part of a level's seats."""


class Level:
    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.exempt = False
        self.queues = Queues()
        self.demand = Demand(now)
        self.shares = 0
        self.nominal = 0
        """Seats that are its own by right."""
        self.least = self.most = 0
        self.widest = 0
        """Seats that one request may take; 0: as many as it likes."""
        self.executing = 0
        self.dispatched: dict[str, list[int]] = {}
        """By flow schema; in lists of one, which flows keep at hand."""
        self.rejected: dict[tuple[str, str], int] = {}
        """By flow schema and reason."""

    def configure(self, spec: Obj) -> None:
        """All but its seats, which depend on the other levels."""
        self.exempt = spec["type"] == "Exempt"
        limits = spec.get("exempt" if self.exempt else "limited") or {}
        self.shares = limits.get("nominalConcurrencyShares", 0 if self.exempt else 30)
        self._lendable = limits.get("lendablePercent") or 0
        self._borrowing = limits.get("borrowingLimitPercent")
        queuing = (limits.get("limitResponse") or {}).get("queuing") or {}
        self._hand = queuing.get("handSize", 0)
        self.queues.configure(queuing.get("queues", 0), queuing.get("queueLengthLimit", 0), self._hand)

    def share(self, total: int, shares: int) -> None:
        """What it has a right to, of so many seats, by its shares of so many; `lend` then says what it has."""
        nominal = ceil(total * self.shares / shares) if shares else 0
        lendable = round(nominal * self._lendable / 100)
        borrowing = total if self._borrowing is None else round(nominal * self._borrowing / 100)
        self.nominal, self.least, self.most = nominal, nominal - lendable, nominal + borrowing
        self.widest = max(1, min(ceil(nominal * _WIDEST), nominal // self._hand)) if self._hand else 0

    def seats_changed(self, now: float) -> None:
        """Whether one seat is taken or none is no matter: most requests are over before the next one comes."""
        wanted = self.queues.in_use + self.queues.seats_waiting
        if wanted > 1 or self.demand.now > 1:
            self.demand.changed(now, wanted)

    def reject(self, schema: str, reason: str) -> None:
        key = (schema, reason)
        self.rejected[key] = self.rejected.get(key, 0) + 1


def lend(levels: Iterable[Level], now: float) -> None:
    """Seats that nobody uses go to those who want more than they have, within what may be lent and borrowed."""
    limited: list[tuple[Level, int, float]] = []
    total = left = least = least_now = 0
    for level in levels:
        total += level.nominal
        most, smoothed = level.demand.look(now)
        if level.exempt:
            level.queues.limit = max(level.least, most)
            left -= level.queues.limit
            continue
        needed = max(level.least, min(level.nominal, most))
        limited.append((level, needed, smoothed))
        least += level.least
        least_now += needed
    left += total
    if left <= least:
        for level, _, _ in limited:
            level.queues.limit = level.least
    elif left <= least_now:
        part = (left - least) / (least_now - least)
        for level, needed, _ in limited:
            level.queues.limit = level.least + round((needed - level.least) * part)
    else:
        claims = [Claim(max(needed, smoothed), needed, level.most) for level, needed, smoothed in limited]
        for (level, _, _), seats in zip(limited, allocate(total, claims), strict=True):
            level.queues.limit = round(seats)
