"""Metrics of an operator's control loops and webhooks, with controller-runtime's names; `reconcile` measures the
queues."""

from __future__ import annotations

from collections import Counter

from setpoint.meta.exposition import Family, Histogram, counter, gauge, histogram
from setpoint.reconcile.metrics import queue_name
from setpoint.sdk.metrics import SECONDS


class LoopMetrics:
    """The metrics of one controller."""

    def __init__(self, name: str, workers: int) -> None:
        self._labels = {"controller": queue_name(name)}
        self._workers = workers
        self.active = 0
        self.seconds = Histogram(SECONDS)

    def families(self) -> list[Family]:
        labels = self._labels
        return [
            histogram("controller_runtime_reconcile_time_seconds", "How long it took.", [(labels, self.seconds)]),
            gauge("controller_runtime_max_concurrent_reconciles", "Workers there are.", [(labels, self._workers)]),
            gauge("controller_runtime_active_workers", "Workers that are busy.", [(labels, self.active)]),
        ]  # fmt: skip


class WebhookMetrics:
    """Webhook metrics by path, bounded by the number of webhooks."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def note(self, path: str, code: int, seconds: float) -> None:
        self._answers[path, code] += 1
        self._seconds.setdefault(path, Histogram(SECONDS)).observe(seconds)

    def families(self) -> list[Family]:
        return [
            counter(
                "controller_runtime_webhook_requests_total",
                "Reviews that were answered.",
                [({"webhook": path, "code": str(code)}, each) for (path, code), each in sorted(self._answers.items())],
            ),
            histogram(
                "controller_runtime_webhook_latency_seconds",
                "How long the answer to a review took.",
                [({"webhook": path}, each) for path, each in sorted(self._seconds.items())],
            ),
        ]
