"""Mechanisms that keep controllers from acting twice, too often, or too soon."""

from __future__ import annotations

from typing import Any

from stopped_clock import StoppedClock

from setpoint.controllers.daemonset.controller import KeyedBackoff
from setpoint.controllers.expectations import WrittenRevisions
from setpoint.controllers.history import canonical_json, revision_hash
from setpoint.controllers.pods import coalescing_delay


class Cache:
    def __init__(self, resource_version: str) -> None:
        self.resource_version = resource_version


def test_a_controller_waits_until_its_cache_has_its_own_writes() -> None:
    pods, claims = Cache("7"), Cache("")
    writes = WrittenRevisions()
    assert writes.seen("a")
    writes.wrote("a", pods, {"metadata": {"resourceVersion": "9"}})
    writes.wrote("a", pods, {"metadata": {"resourceVersion": "8"}})
    writes.wrote("a", claims, {"kind": "Status"})
    assert not writes.seen("a")
    assert writes.seen("b")
    pods.resource_version = "9"
    assert writes.seen("a")
    writes.wrote("a", claims, {"metadata": {"resourceVersion": "10"}})
    assert not writes.seen("a")
    writes.forget("a")
    assert writes.seen("a")


def test_backoff_doubles_and_is_forgotten() -> None:
    clock = StoppedClock()
    backoff = KeyedBackoff(clock, 1.0, 8.0)
    waits = []
    for _ in range(6):
        backoff.failed("a")
        waits.append(backoff.remaining("a"))
    assert waits == [1, 2, 4, 8, 8, 8]
    clock._elapsed += 5
    assert backoff.remaining("a") == 3
    assert backoff.remaining("b") == 0
    clock._elapsed += 12
    backoff.failed("a")
    assert backoff.remaining("a") == 1


def pod(phase: str = "Running", **labels: str) -> Any:
    return {"metadata": {"labels": labels}, "status": {"phase": phase}}


def test_only_status_changes_of_large_sets_are_delayed() -> None:
    before, after = pod("Pending", app="web"), pod("Running", app="web")
    assert coalescing_delay(before, after, 10) == 0
    assert coalescing_delay(before, after, 1000) == 0.1
    assert coalescing_delay(before, after, 10**6) == 0.25
    assert coalescing_delay(None, after, 1000) == 0
    assert coalescing_delay(before, None, 1000) == 0
    assert coalescing_delay(before, pod("Failed", app="web"), 1000) == 0
    assert coalescing_delay(before, pod("Running", app="other"), 1000) == 0


def test_the_revision_hash_equals_upstreams() -> None:
    """A StatefulSet of this template has the revision `web-98c848646` upstream."""
    template = {
        "$patch": "replace",
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "containers": [
                {
                    "image": "nginx:2",
                    "imagePullPolicy": "IfNotPresent",
                    "name": "c",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "schedulerName": "none",
            "securityContext": {},
            "terminationGracePeriodSeconds": 0,
        },
    }
    assert revision_hash({"spec": {"template": template}}, 0) == "98c848646"
    assert revision_hash({"spec": {"template": template}}, 1) != "98c848646"
    assert canonical_json({"b": "<&>", "a": "\u2028"}) == b'{"a":"\\u2028","b":"\\u003c\\u0026\\u003e"}'
