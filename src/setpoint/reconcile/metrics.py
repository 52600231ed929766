"""Metrics of controllers and workqueues, with the names that client-go and controller-runtime use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from setpoint.meta.exposition import Family, Labels, counter, gauge, histogram
from setpoint.reconcile.controller import Controller, Counts
from setpoint.reconcile.events import EventWriteQueue

_NAMES = {
    "certificatesigningrequest-approving-controller": "certificate",
    "endpoints-controller": "endpoint",
    "endpointslice-controller": "endpoint_slice",
    "endpointslice-mirroring-controller": "endpoint_slice_mirroring",
    "ephemeral-volume-controller": "ephemeral_volume",
    "horizontal-pod-autoscaler-controller": "horizontalpodautoscaler",
    "node-ipam-controller": "node",
    "resourceclaim-controller": "resource_claim",
    "root-ca-certificate-publisher-controller": "root_ca_cert_publisher",
    "serviceaccount-token-controller": "serviceaccount_tokens_secret",
    "taint-eviction-controller": "noexec_taint_pod",
    "ttl-after-finished-controller": "ttl_jobs_to_delete",
    "ttl-controller": "ttlcontroller",
}
"""Queue names of upstream that differ from the name of the controller."""


def families(controllers: Sequence[Controller], events: Sequence[EventWriteQueue] = ()) -> list[Family]:
    named: list[tuple[Labels, Controller]] = [({"name": queue_name(each.name)}, each) for each in controllers]
    ran: list[tuple[Labels, Controller]] = [({"controller": queue_name(each.name)}, each) for each in controllers]
    results = [({**labels, "result": result}, value) for labels, each in ran for result, value in _results(each.counts)]
    return [
        gauge(
            "workqueue_depth", "Current number of queued keys.", ((labels, len(each.queue)) for labels, each in named)
        ),
        counter(
            "workqueue_adds_total",
            "Total number of keys added to the queue.",
            ((labels, each.queue.added) for labels, each in named),
        ),
        counter(
            "workqueue_retries_total",
            "Total number of rate-limited requeues.",
            ((labels, each.counts.retried) for labels, each in named),
        ),
        histogram(
            "workqueue_queue_duration_seconds",
            "Seconds that keys waited in the queue.",
            ((labels, each.queue.waited) for labels, each in named),
        ),
        histogram(
            "workqueue_work_duration_seconds",
            "Seconds that processing a key took.",
            ((labels, each.work_seconds) for labels, each in named),
        ),
        counter("controller_runtime_reconcile_total", "Total number of reconciles by result.", results),
        counter(
            "controller_runtime_reconcile_errors_total",
            "Total number of failed reconciles.",
            ((labels, each.counts.failed) for labels, each in ran),
        ),
        gauge(
            "setpoint_events_waiting",
            "Current number of queued Events.",
            _by_component((each.component, len(each)) for each in events),
        ),
        counter(
            "setpoint_events_dropped_total",
            "Total number of Events dropped because the queue was full or they waited too long.",
            _by_component((each.component, each.dropped) for each in events),
        ),
    ]


def _by_component(values: Iterable[tuple[str, int]]) -> list[tuple[Labels, float]]:
    """Sum the values of each component, which may have several recorders."""
    found: Counter[str] = Counter()
    for component, value in values:
        found[component] += value
    return [({"component": component}, value) for component, value in found.items()]


def _results(counts: Counts) -> Iterator[tuple[str, int]]:
    requeued = counts.retried - counts.failed
    yield "success", counts.done - counts.failed - requeued - counts.requeued_after
    yield "error", counts.failed
    yield "requeue", requeued
    yield "requeue_after", counts.requeued_after


def queue_name(controller: str) -> str:
    return _NAMES.get(controller) or controller.removesuffix("-controller").replace("-", "_")
