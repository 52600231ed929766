"""How controllers and their queues fare, under the names that upstream's workqueues and controller-runtime use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from setpoint.meta.exposition import Family, Labels, counter, gauge, histogram
from setpoint.reconcile.controller import Controller, Counts
from setpoint.reconcile.event_writing import EventWriting

_NAMES = {
    "certificatesigningrequest-approving-controller": "certificate", "endpoints-controller": "endpoint",
    "endpointslice-controller": "endpoint_slice", "endpointslice-mirroring-controller": "endpoint_slice_mirroring",
    "ephemeral-volume-controller": "ephemeral_volume", "horizontal-pod-autoscaler-controller":
    "horizontalpodautoscaler", "node-ipam-controller": "node", "resourceclaim-controller": "resource_claim",
    "root-ca-certificate-publisher-controller": "root_ca_cert_publisher",
    "serviceaccount-token-controller": "serviceaccount_tokens_secret",
    "taint-eviction-controller": "noexec_taint_pod", "ttl-after-finished-controller": "ttl_jobs_to_delete",
    "ttl-controller": "ttlcontroller",
}  # fmt: skip
"""Where upstream's queue is not called as the controller is."""


def families(controllers: Sequence[Controller], events: Sequence[EventWriting] = ()) -> list[Family]:
    named: list[tuple[Labels, Controller]] = [({"name": queue_name(each.name)}, each) for each in controllers]
    ran: list[tuple[Labels, Controller]] = [({"controller": queue_name(each.name)}, each) for each in controllers]
    results = [({**labels, "result": result}, value) for labels, each in ran for result, value in _results(each.counts)]
    return [
        gauge("workqueue_depth", "Keys that wait for work.", ((labels, len(each.queue)) for labels, each in named)),
        counter(
            "workqueue_adds_total",
            "Keys that came into the queue.",
            ((labels, each.queue.added) for labels, each in named),
        ),
        counter(
            "workqueue_retries_total", "Keys that came back.", ((labels, each.counts.retried) for labels, each in named)
        ),
        histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited for work.",
            ((labels, each.queue.waited) for labels, each in named),
        ),
        histogram(
            "workqueue_work_duration_seconds",
            "How long the work on a key took.",
            ((labels, each.work_seconds) for labels, each in named),
        ),
        counter("controller_runtime_reconcile_total", "Reconciles by how they ended.", results),
        counter(
            "controller_runtime_reconcile_errors_total",
            "Reconciles that failed.",
            ((labels, each.counts.failed) for labels, each in ran),
        ),
        gauge(
            "setpoint_events_waiting",
            "Events that wait to be written.",
            _by_component((each.component, len(each)) for each in events),
        ),
        counter(
            "setpoint_events_dropped_total",
            "Events that were dropped because too many waited, or they waited for too long.",
            _by_component((each.component, each.dropped) for each in events),
        ),
    ]


def _by_component(values: Iterable[tuple[str, int]]) -> list[tuple[Labels, float]]:
    """One series for each component, however many recorders it has."""
    found: Counter[str] = Counter()
    for component, value in values:
        found[component] += value
    return [({"component": component}, value) for component, value in found.items()]


def _results(counts: Counts) -> Iterator[tuple[str, int]]:
    requeued = counts.retried - counts.failed
    yield "success", counts.done - counts.failed - requeued - counts.later
    yield "error", counts.failed
    yield "requeue", requeued
    yield "requeue_after", counts.later


def queue_name(controller: str) -> str:
    return _NAMES.get(controller) or controller.removesuffix("-controller").replace("-", "_")
