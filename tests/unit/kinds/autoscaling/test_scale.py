from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.autoscaling.scale import apply_scale, to_scale, validate_scale
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj

META = {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2029-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("kind", "selector", "text"),
    [
        ("Deployment", {"matchLabels": {"b": "1", "a": "2"}}, "a=2,b=1"),
        ("StatefulSet", {"matchExpressions": [{"key": "k", "operator": "In", "values": ["z", "y"]}]}, "k in (y,z)"),
        ("ReplicationController", {"b": "1", "a": "2"}, "a=2,b=1"),
    ],
)
def test_scale_of(kind: str, selector: dict[str, Any], text: str) -> None:
    obj = {
        "kind": kind,
        "metadata": {**META, "labels": {"a": "b"}, "generation": 3},
        "spec": {"replicas": 3, "selector": selector},
        "status": {"replicas": 2},
    }
    assert to_scale(obj) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": META,
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": text},
    }


def test_zero_replicas_are_left_out_of_the_spec() -> None:
    scale = to_scale({"kind": "Deployment", "metadata": META, "spec": {"replicas": 0}, "status": {}})
    assert (scale["spec"], scale["status"]) == ({}, {"replicas": 0})


def test_apply() -> None:
    obj: Obj = {"kind": "Deployment", "metadata": META, "spec": {"replicas": 1, "paused": True}}
    scaled = apply_scale({"metadata": {"resourceVersion": "9"}, "spec": {"replicas": 5}}, obj)
    assert scaled["spec"] == {"replicas": 5, "paused": True}
    assert scaled["metadata"]["resourceVersion"] == "9"
    unconditional = apply_scale({"spec": {}}, obj)
    assert (unconditional["spec"]["replicas"], "resourceVersion" in unconditional["metadata"]) == (0, False)
    assert obj["metadata"]["resourceVersion"] == "7"


def test_replicas_are_not_negative() -> None:
    errs: Errors = []
    validate_scale({"spec": {"replicas": -1}}, errs)
    assert [e.message() for e in errs] == ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]
