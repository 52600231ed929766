"""How long a Job waits before it replaces a Pod that failed: 10 s, doubled with each failure in a row, up to 10 min."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from setpoint.controllers.job.job_pods import all_failures, finished_at

Obj = dict[str, Any]

FIRST, LONGEST = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class Backoff:
    failures: int = 0
    """Since the last success."""
    last: datetime | None = None
    """When the last of them happened."""

    def after(self, succeeded: Iterable[Obj], failed: Iterable[Obj]) -> Backoff:
        """With Pods that have ended since."""
        successes = sorted(map(finished_at, succeeded))
        ends = sorted(map(finished_at, failed))
        if successes:
            ends = [end for end in ends if end > successes[-1]]
            return Backoff(len(ends), ends[-1] if ends else None)
        return Backoff(self.failures + len(ends), ends[-1]) if ends else self

    def remaining(self, now: datetime) -> float:
        """Seconds until the next Pod may be made."""
        return _remaining(self.failures, self.last, now)


def remaining_for_index(last_failed: Obj | None, now: datetime) -> float:
    """Each index waits for itself; its Pods carry the number of those that failed before them."""
    if last_failed is None:
        return 0.0
    return _remaining(all_failures(last_failed) + 1, finished_at(last_failed), now)


def _remaining(failures: int, last: datetime | None, now: datetime) -> float:
    if not failures or last is None:
        return 0.0
    wait = min(FIRST * 2.0 ** min(failures - 1, 32), LONGEST)
    return max(0.0, wait - (now - last).total_seconds())
