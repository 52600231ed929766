"""What the autoscaler asks to be measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, Protocol

Obj = dict[str, Any]


class MetricsFailure(Exception):
    """No number could be had; the text says why."""


class PodMetric(NamedTuple):
    value: int
    """In thousandths."""
    at: datetime | None = None
    window: float = 60.0
    """The seconds before `at` that were measured."""


PodMetrics = dict[str, PodMetric]
"""By the name of the Pod."""


class Metrics(Protocol):
    """Where numbers come from, all of them in thousandths. Everything raises MetricsFailure."""

    async def resource(self, name: str, namespace: str, selector: str, container: str = "") -> PodMetrics:
        """How much of a resource (cpu, memory) the selected Pods use, or one container of each of them."""
        ...

    async def pods(self, name: str, namespace: str, selector: str, metric_selector: str) -> PodMetrics:
        """A custom metric of each of the selected Pods."""
        ...

    async def object(self, name: str, namespace: str, reference: Obj, metric_selector: str) -> int:
        """A custom metric of some other object."""
        ...

    async def external(self, name: str, namespace: str, metric_selector: str) -> list[int]:
        """A metric of something outside, as many values as match."""
        ...
