"""The metrics that the autoscaler reads."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, Protocol

Obj = dict[str, Any]


class MetricsFailure(Exception):
    """A metric is unavailable; the text says why."""


class PodMetric(NamedTuple):
    value: int
    """The value in thousandths."""
    at: datetime | None = None
    window: float = 60.0
    """Seconds before `at` that the measurement covers."""


PodMetrics = dict[str, PodMetric]
"""Metrics by Pod name."""


class Metrics(Protocol):
    """Reads metrics, all in thousandths. Every method raises MetricsFailure."""

    async def resource(self, name: str, namespace: str, selector: str, container: str = "") -> PodMetrics:
        """Return the usage of a resource (cpu, memory) by the selected Pods, or by one container of each."""
        ...

    async def pods(self, name: str, namespace: str, selector: str, metric_selector: str) -> PodMetrics:
        """Return a custom metric of each selected Pod."""
        ...

    async def object(self, name: str, namespace: str, reference: Obj, metric_selector: str) -> int:
        """Return a custom metric of another object."""
        ...

    async def external(self, name: str, namespace: str, metric_selector: str) -> list[int]:
        """Return the matching values of an external metric."""
        ...
