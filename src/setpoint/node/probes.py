"""When a probe runs and what its results mean: the kubelet's rules, one object for each probe of a container."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STARTUP, LIVENESS, READINESS = "startup", "liveness", "readiness"
_FIELDS = ((STARTUP, "startupProbe"), (LIVENESS, "livenessProbe"), (READINESS, "readinessProbe"))


class Probe:
    """Lives as long as its container may run again; `reset` begins a new run."""

    __slots__ = (
        "failed", "failures", "kind", "last", "next_at", "on_hold", "run", "spec", "success", "successes",
    )  # fmt: skip

    def __init__(self, kind: str, spec: Mapping[str, Any]) -> None:
        self.kind = kind
        self.spec = spec
        self.next_at = 0.0
        """The next tick; zero: none yet."""
        self.last: bool | None = None
        self.run = 0
        """How often the last result came in a row."""
        self.success = kind == LIVENESS
        """The result that counts."""
        self.failed = False
        """It counts, and it is failure: for liveness and startup the end of the run."""
        self.on_hold = False
        self.failures = self.successes = 0
        """How often it has run so far, by result."""

    @property
    def started(self) -> bool:
        return self.kind != STARTUP or self.success

    @property
    def ready(self) -> bool:
        return self.kind != READINESS or self.success

    @property
    def period(self) -> float:
        return float(self.spec.get("periodSeconds") or 10)

    def reset(self) -> None:
        self.success, self.failed, self.on_hold = self.kind == LIVENESS, False, False

    def tick(self, now: float) -> None:
        """The next tick after now, in step with the ones before."""
        period = self.period
        if self.next_at <= 0:
            self.next_at = now + period
        while self.next_at <= now:
            self.next_at += period

    def trigger(self, now: float) -> None:
        """Runs now, and then every period from now."""
        self.next_at = now

    def delayed(self, started_at: float, now: float) -> bool:
        return int(now - started_at + 1e-9) < int(self.spec.get("initialDelaySeconds") or 0)

    def take(self, result: bool) -> bool:
        """Counts a result; returns whether what counts has changed."""
        if result:
            self.successes += 1
        else:
            self.failures += 1
        if self.last is result:
            self.run += 1
        else:
            self.last, self.run = result, 1
        threshold = self.spec.get("successThreshold" if result else "failureThreshold") or (1 if result else 3)
        if self.run < threshold:
            return False
        before = (self.success, self.failed)
        self.success, self.failed = result, not result
        if self.kind == STARTUP or (self.kind == LIVENESS and not result):
            self.on_hold, self.run = True, 0
        return before != (self.success, self.failed)


def probes_of(container: Mapping[str, Any]) -> tuple[Probe, ...]:
    return tuple(Probe(kind, container[field]) for kind, field in _FIELDS if container.get(field))
