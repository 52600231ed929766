"""Differences of fields, and health of objects: pure functions."""

from __future__ import annotations

from typing import Any

import pytest
from examples.gitops.comparing import changed_fields
from examples.gitops.health import ailment

from setpoint.meta.objects import Obj


def deployment(replicas: int, image: str, **meta: Any) -> Obj:
    containers = [{"name": "web", "image": image}, {"name": "side", "args": ["a"]}]
    spec = {"replicas": replicas, "template": {"spec": {"containers": containers}}}
    return {"kind": "Deployment", "metadata": {"name": "web", **meta}, "spec": spec, "status": {"replicas": replicas}}


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        (deployment(1, "a"), deployment(1, "a"), []),
        (deployment(1, "a", resourceVersion="1"), deployment(1, "a", resourceVersion="2", generation=3), []),
        (deployment(1, "a"), deployment(2, "a"), [".spec.replicas"]),
        (deployment(1, "a"), deployment(1, "b"), [".spec.template.spec.containers[web].image"]),
        (deployment(1, "a", labels={"x": "y"}), deployment(1, "a"), [".metadata.labels"]),
        (
            deployment(1, "a", labels={"x": "y", "z": "z"}),
            deployment(1, "a", labels={"z": "z"}),
            [".metadata.labels.x"],
        ),
        ({"metadata": {}, "data": [1]}, {"metadata": {}, "data": [1, 2]}, [".data"]),
        ({"metadata": {}, "a": [{"name": "x"}]}, {"metadata": {}, "a": []}, [".a[x]"]),
    ],
)
def test_changed_fields(before: Obj, after: Obj, fields: list[str]) -> None:
    assert changed_fields(before, after) == fields


SEEN = {"observedGeneration": 2}


def workload(kind: str, status: Obj, generation: int = 2) -> Obj:
    return {"kind": kind, "metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status}


def condition(type: str, status: str) -> Obj:
    return {"conditions": [{"type": type, "status": status, "message": "m"}]}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (workload("Deployment", {}), "its controller has not looked at it yet"),
        (workload("Deployment", {"observedGeneration": 1}), "its controller has not looked at it yet"),
        (
            workload("Deployment", {"observedGeneration": 2, "readyReplicas": 2, "updatedReplicas": 1}),
            "1 of 2 are ready",
        ),
        (workload("Deployment", {"observedGeneration": 2, "readyReplicas": 2, "updatedReplicas": 2}), ""),
        (workload("ReplicaSet", {**SEEN, "readyReplicas": 2}), ""),
        (workload("DaemonSet", {**SEEN, "desiredNumberScheduled": 1}), "0 of 1 are ready"),
        (workload("Job", condition("Complete", "True")), ""),
        (workload("Job", condition("Failed", "True")), "it has failed"),
        (workload("Job", {}), "it runs"),
        (workload("PersistentVolumeClaim", {"phase": "Bound"}), ""),
        (workload("PersistentVolumeClaim", {}), "it is Pending"),
        (workload("CustomResourceDefinition", {}), "it is not served yet"),
        (workload("CustomResourceDefinition", condition("Established", "True")), ""),
        (workload("Teapot", {}), ""),
        (workload("Teapot", condition("Ready", "False")), "m"),
        (workload("Teapot", condition("Ready", "True")), ""),
        ({"kind": "ConfigMap", "metadata": {}}, ""),
    ],
)
def test_health_of_objects(obj: Obj, expected: str) -> None:
    assert ailment(obj) == expected
