"""The backoff before a Job replaces a failed Pod: 10 s, doubled with each consecutive failure, up to 10 min."""

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
    """Failures since the last success."""
    last: datetime | None = None
    """The time of the last failure; None if there is none."""

    def after(self, succeeded: Iterable[Obj], failed: Iterable[Obj]) -> Backoff:
        """Return the backoff after these Pods have ended."""
        successes = sorted(map(finished_at, succeeded))
        ends = sorted(map(finished_at, failed))
        if successes:
            ends = [end for end in ends if end > successes[-1]]
            return Backoff(len(ends), ends[-1] if ends else None)
        return Backoff(self.failures + len(ends), ends[-1]) if ends else self

    def remaining(self, now: datetime) -> float:
        """Return the seconds until the next Pod may be created."""
        return _remaining(self.failures, self.last, now)


def remaining_for_index(last_failed: Obj | None, now: datetime) -> float:
    """Return the backoff of one index, whose Pods carry the number of earlier failures."""
    if last_failed is None:
        return 0.0
    return _remaining(all_failures(last_failed) + 1, finished_at(last_failed), now)


def _remaining(failures: int, last: datetime | None, now: datetime) -> float:
    if not failures or last is None:
        return 0.0
    wait = min(FIRST * 2.0 ** min(failures - 1, 32), LONGEST)
    return max(0.0, wait - (now - last).total_seconds())
