"""Finds the Services that a Pod change concerns."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.controllers.service_pods import ServicePods, TriggerTimes
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer


def informer(*objects: Obj) -> Informer[Any]:
    found: Informer[Any] = Informer(None, ("v1", "X"), None)  # type: ignore[arg-type]
    for obj in objects:
        found._put(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", obj)
    return found


def service(name: str, **selector: str) -> Any:
    meta = {"name": name, "namespace": "d", "uid": name, "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"selector": selector} if selector else {}}


def pod(ready: bool = True, going: bool = False, phase: str = "Running", ip: str = "1", **labels: str) -> Any:
    meta: Obj = {"name": "p", "namespace": "d", "uid": "p", "resourceVersion": "1", "labels": labels}
    if going:
        meta["deletionTimestamp"] = "x"
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "podIPs": [{"ip": ip}], "conditions": conditions}}


SERVICES = [service("a", app="x"), service("both", app="x", tier="y"), service("b", app="z"), service("none")]


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (None, pod(app="x"), {"a"}),
        (pod(app="x", tier="y"), None, {"a", "both"}),
        (pod(app="x"), pod(app="x"), set()),
        (pod(app="x"), pod(app="x", ready=False), {"a"}),
        (pod(app="x"), pod(app="x", going=True), {"a"}),
        (pod(app="x", ready=False), pod(app="x", ready=False, phase="Failed"), {"a"}),
        (pod(app="x"), pod(app="x", ip="2"), {"a"}),
        (pod(app="x"), pod(app="z"), {"a", "b"}),
        (pod(app="x"), pod(app="x", tier="y"), {"both"}),
        (pod(app="x"), pod(app="x", tier="y", ready=False), {"a", "both"}),
        (None, pod(), set()),
    ],
)
def test_affected_services(old: Any, new: Any, keys: set[str]) -> None:
    found = ServicePods(informer(*SERVICES), informer()).affected_services(old, new)
    assert set(found) == {f"d/{key}" for key in keys} and len(found) == len(keys)


def test_pods_of_services() -> None:
    pods = ServicePods(informer(*SERVICES), informer(pod(app="x")))
    assert [len(pods.pods_of(each)) for each in SERVICES[:3]] == [1, 0, 0]


def test_trigger_times() -> None:
    def ready_since(name: str, stamp: str) -> Any:
        condition = {"type": "Ready", "status": "True", "lastTransitionTime": stamp}
        return {"metadata": {"name": name}, "status": {"conditions": [condition]}}

    times = TriggerTimes()
    made: Any = {"metadata": {"creationTimestamp": "1"}}
    assert times.since("k", made, [ready_since("a", "5")]) == "1"
    assert times.since("k", made, [ready_since("a", "5")]) == ""
    assert times.since("k", made, [ready_since("a", "7"), ready_since("b", "6")]) == "6"
    assert times.since("k", made, []) == ""
    times.forget("k")
    assert times.since("k", made, []) == "1"
