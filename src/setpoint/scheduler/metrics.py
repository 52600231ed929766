"""The scheduler's metrics, under upstream's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from setpoint.meta.exposition import Family, Histogram, counter, exponential, gauge, histogram

_ATTEMPT_SECONDS = exponential(0.001, 2, 15)
_SLI_SECONDS = exponential(0.01, 2, 20)
_ATTEMPTS = exponential(1, 2, 5)
_VICTIMS = exponential(1, 2, 7)
_MAX_ATTEMPTS_LABEL = 15
"""The highest number of attempts with a label value of its own."""


class Metrics:
    def __init__(self) -> None:
        self.schedule_attempts_total: Counter[tuple[str, str]] = Counter()
        """Attempts by result (scheduled, unschedulable, error) and profile."""
        self._attempt_seconds: dict[tuple[str, str], Histogram] = {}
        self._attempts = Histogram(_ATTEMPTS)
        self._sli_seconds: dict[int, Histogram] = {}
        """Seconds from the first attempt to the binding, by number of attempts."""
        self.preemption_attempts_total = 0
        self._victims = Histogram(_VICTIMS)

    def attempted(self, result: str, profile: str, seconds: float) -> None:
        self.schedule_attempts_total[result, profile] += 1
        found = self._attempt_seconds.get((result, profile))
        if found is None:
            found = self._attempt_seconds[result, profile] = Histogram(_ATTEMPT_SECONDS)
        found.observe(seconds)

    def scheduled(self, profile: str, seconds: float, attempts: int, since_first: float) -> None:
        self.attempted("scheduled", profile, seconds)
        self._attempts.observe(attempts)
        label = min(attempts, _MAX_ATTEMPTS_LABEL)
        found = self._sli_seconds.get(label)
        if found is None:
            found = self._sli_seconds[label] = Histogram(_SLI_SECONDS)
        found.observe(since_first)

    def preempted(self, victims: int) -> None:
        self.preemption_attempts_total += 1
        self._victims.observe(victims)

    def families(self, pending: Mapping[str, int]) -> list[Family]:
        """Return the metric families. `pending` is the number of Pods in each part of the queue."""
        attempts = sorted(self.schedule_attempts_total.items())
        durations = sorted(self._attempt_seconds.items(), key=lambda each: each[0])
        return [
            gauge(
                "scheduler_pending_pods",
                "Pending Pods, by part of the queue.",
                (({"queue": part}, n) for part, n in pending.items()),
            ),
            counter(
                "scheduler_schedule_attempts_total",
                "Attempts to schedule Pods, by result.",
                (({"profile": profile, "result": result}, count) for (result, profile), count in attempts),
            ),
            histogram(
                "scheduler_scheduling_attempt_duration_seconds",
                "Duration of an attempt, including the binding.",
                (({"profile": profile, "result": result}, found) for (result, profile), found in durations),
            ),
            histogram(
                "scheduler_pod_scheduling_attempts", "Attempts until a Pod was scheduled.", [({}, self._attempts)]
            ),
            histogram(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "Seconds from the first attempt to the binding.",
                (({"attempts": str(label)}, found) for label, found in sorted(self._sli_seconds.items())),
            ),
            counter(
                "scheduler_preemption_attempts_total", "Preemption attempts.", [({}, self.preemption_attempts_total)]
            ),
            histogram("scheduler_preemption_victims", "Pods that a preemption evicts.", [({}, self._victims)]),
        ]
