"""Metrics that a test sets."""

from __future__ import annotations

from setpoint.controllers.podautoscaler.metrics import MetricsFailure, PodMetric, PodMetrics
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer


class MetricsByHand:
    """`usage` is what every Pod that runs uses, in thousandths; None: no metrics are there."""

    def __init__(self) -> None:
        self.clock: Clock | None = None
        self.running: Informer[Obj] | None = None
        self.usage: dict[str, int | None] = {}
        self.custom: dict[str, int] = {}
        self.outside: dict[str, list[int]] = {}

    async def resource(self, name: str, namespace: str, selector: str, container: str = "") -> PodMetrics:
        return self._of_pods(self.usage.get(name), "resource")

    async def pods(self, name: str, namespace: str, selector: str, metric_selector: str) -> PodMetrics:
        return self._of_pods(self.custom.get(name), "custom")

    async def object(self, name: str, namespace: str, reference: Obj, metric_selector: str) -> int:
        if name not in self.custom:
            raise MetricsFailure("unable to fetch metrics from custom metrics API: not there")
        return self.custom[name]

    async def external(self, name: str, namespace: str, metric_selector: str) -> list[int]:
        if name not in self.outside:
            raise MetricsFailure("unable to fetch metrics from external metrics API: not there")
        return self.outside[name]

    def _of_pods(self, value: int | None, api: str) -> PodMetrics:
        if value is None:
            raise MetricsFailure(f"no metrics returned from {api} metrics API")
        assert self.running is not None and self.clock is not None
        now = self.clock.now()
        return {
            pod["metadata"]["name"]: PodMetric(value, now, 10.0)
            for pod in self.running.items.values()
            if (pod.get("status") or {}).get("phase") == "Running"
        }
