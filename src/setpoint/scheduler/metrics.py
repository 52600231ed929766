"""What the scheduler counts, under upstream's names (less the prefix `scheduler_`)."""

from __future__ import annotations

from collections import Counter, defaultdict


class Metrics:
    def __init__(self) -> None:
        self.schedule_attempts_total: Counter[tuple[str, str]] = Counter()
        """By result (scheduled, unschedulable, error) and profile."""
        self.scheduling_attempt_duration_seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
        """The sum, by the same."""
        self.pod_scheduling_attempts: Counter[int] = Counter()
        """How many Pods took how many attempts."""
        self.pod_scheduling_sli_duration_seconds = 0.0
        """The sum of the times from the first attempt to the binding."""
        self.preemption_attempts_total = 0
        self.preemption_victims = 0

    def attempted(self, result: str, profile: str, seconds: float) -> None:
        self.schedule_attempts_total[result, profile] += 1
        self.scheduling_attempt_duration_seconds[result, profile] += seconds

    def scheduled(self, profile: str, seconds: float, attempts: int, since_first: float) -> None:
        self.attempted("scheduled", profile, seconds)
        self.pod_scheduling_attempts[attempts] += 1
        self.pod_scheduling_sli_duration_seconds += since_first

    def preempted(self, victims: int) -> None:
        self.preemption_attempts_total += 1
        self.preemption_victims += victims
