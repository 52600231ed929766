from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from setpoint.kinds.autoscaling.horizontalpodautoscaler import from_v1, to_v1

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
PREFIX = "autoscaling.alpha.kubernetes.io/"


def hpa(**more: Any) -> dict[str, Any]:
    return {"spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **more}}


def test_defaults(lifecycle: Any) -> None:
    body = {
        **hpa(behavior={"scaleDown": {"selectPolicy": "Disabled"}}),
        "metadata": {"annotations": {PREFIX + "metrics": "[]", "k": "v"}},
    }
    obj, errs, _ = lifecycle("autoscaling/v2", "HorizontalPodAutoscaler").create(body)
    assert errs == []
    assert obj["metadata"]["annotations"] == {"k": "v"}
    assert obj["spec"]["minReplicas"] == 1
    assert obj["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    ]
    assert obj["spec"]["behavior"]["scaleUp"]["policies"][0] == {"type": "Pods", "value": 4, "periodSeconds": 15}
    assert obj["spec"]["behavior"]["scaleDown"] == {
        "selectPolicy": "Disabled",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
    assert obj["status"] == {"desiredReplicas": 0, "currentMetrics": None}


def metric(kind: str, **sources: Any) -> dict[str, Any]:
    return {"metrics": [{"type": kind, **sources}]}


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        (
            {"maxReplicas": 0, "scaleTargetRef": {}},
            [
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
                "spec.scaleTargetRef.kind: Required value",
                "spec.scaleTargetRef.name: Required value",
                'spec.scaleTargetRef.apiVersion: Invalid value: "": apiVersion must specify API group',
                "spec.maxReplicas: Required value",
            ],
        ),
        (
            {"minReplicas": 0},
            [
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero "
                "replicas"
            ],
        ),
        ({"scaleTargetRef": {**TARGET, "kind": "ReplicationController", "apiVersion": "v1"}}, []),
        (
            metric("Zz"),
            [
                'spec.metrics[0].type: Unsupported value: "Zz": '
                'supported values: "ContainerResource", "External", "Object", "Pods", "Resource"'
            ],
        ),
        (
            metric("Pods"),
            ["spec.metrics[0].pods: Required value: must populate information for the given metric source"],
        ),
        (
            metric("Resource", resource={"name": "cpu", "target": {"type": "Utilization", "averageValue": "0"}}),
            ['spec.metrics[0].resource.target.averageValue: Invalid value: "0": must be positive'],
        ),
        (
            metric("External", external={"metric": {"name": "a/b"}, "target": {"type": "Value"}}),
            [
                "spec.metrics[0].external.metric.name: Invalid value: \"a/b\": may not contain '/'",
                "spec.metrics[0].external.target.averageValue: Required value: "
                "must set either a target value for metric or a per-pod target",
            ],
        ),
        (
            {
                "behavior": {
                    "scaleUp": {
                        "stabilizationWindowSeconds": 4000,
                        "tolerance": "-1",
                        "policies": [{"type": "X", "value": 0, "periodSeconds": 1801}],
                    }
                }
            },
            [
                "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600",
                'spec.behavior.scaleUp.policies[0].type: Unsupported value: "X": supported values: "Percent", "Pods"',
                "spec.behavior.scaleUp.policies[0].value: Invalid value: 0: must be greater than zero",
                "spec.behavior.scaleUp.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
                'spec.behavior.scaleUp.tolerance: Invalid value: "-1": must be greater than or equal to 0',
            ],
        ),
    ],
)
def test_rules(lifecycle: Any, changes: dict[str, Any], messages: list[str]) -> None:
    assert lifecycle("autoscaling/v2", "HorizontalPodAutoscaler").create(hpa(**changes))[1] == messages


def test_a_stored_invalid_target_stays_allowed(lifecycle: Any) -> None:
    hpas = lifecycle("autoscaling/v2", "HorizontalPodAutoscaler")
    obj, _, _ = hpas.create(hpa())
    obj["spec"]["scaleTargetRef"] = {**TARGET, "apiVersion": "v1"}
    assert hpas.update(obj, spec={"maxReplicas": 4})[1] == []
    (message,) = hpas.update(obj, spec={"scaleTargetRef": {"apiVersion": "v1", "kind": "Other", "name": "d"}})[1]
    assert message.endswith("apiVersion must specify API group")


METRICS = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {"type": "Pods", "pods": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "1"}}},
    {
        "type": "Object",
        "object": {
            "describedObject": {"kind": "K", "name": "n"},
            "metric": {"name": "m"},
            "target": {"type": "Value", "value": "5"},
        },
    },
    {
        "type": "External",
        "external": {
            "metric": {"name": "e", "selector": {"matchLabels": {"a": "<b>"}}},
            "target": {"type": "AverageValue", "averageValue": "7"},
        },
    },
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 50},
        },
    },
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
]


def test_v1_stores_v2_fields_in_annotations(lifecycle: Any) -> None:
    obj, errs, _ = lifecycle("autoscaling/v2", "HorizontalPodAutoscaler").create(
        {**hpa(metrics=METRICS, behavior={}), "metadata": {"annotations": {"k": "v"}}}
    )
    assert errs == []
    obj = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", **obj}
    obj["status"] = {
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "currentMetrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "current": {"averageValue": "10m", "averageUtilization": 42}},
            }
        ],
        "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2029-01-01T00:00:00Z"}],
    }
    stored = copy.deepcopy(obj)
    v1 = to_v1(obj)
    assert obj == stored
    assert v1["apiVersion"] == "autoscaling/v1"
    assert v1["spec"] == {
        "scaleTargetRef": TARGET,
        "minReplicas": 1,
        "maxReplicas": 3,
        "targetCPUUtilizationPercentage": 60,
    }
    assert v1["status"] == {"currentReplicas": 2, "desiredReplicas": 3, "currentCPUUtilizationPercentage": 42}
    annotations = v1["metadata"]["annotations"]
    carried = [PREFIX + name for name in ("behavior", "conditions", "current-metrics", "metrics")]
    assert sorted(annotations) == [*carried, "k"]
    assert annotations[PREFIX + "metrics"].startswith(
        '[{"type":"Resource","resource":{"name":"memory","targetAverageValue":"1Gi"}},'
    )
    assert "\\u003cb\\u003e" in annotations[PREFIX + "metrics"]
    assert list(json.loads(annotations[PREFIX + "behavior"])["ScaleUp"]) == [
        "StabilizationWindowSeconds",
        "SelectPolicy",
        "Policies",
        "Tolerance",
    ]
    assert from_v1(v1) == stored


@pytest.mark.parametrize("text", ["bad", "{}", "[1]", ""])
def test_annotations_that_cannot_be_read_are_dropped(text: str) -> None:
    v1 = {"metadata": {"annotations": {PREFIX + "metrics": text, PREFIX + "behavior": text}}, **hpa()}
    v2 = from_v1(v1)
    assert "annotations" not in v2["metadata"]
    assert (len(v2["spec"]["metrics"]), "behavior" in v2["spec"]) == (1, False)


def test_v1_defaults_and_cells(lifecycle: Any) -> None:
    v1 = lifecycle("autoscaling/v1", "HorizontalPodAutoscaler")
    obj: dict[str, Any] = {"metadata": {"name": "x", "creationTimestamp": "2029-12-31T00:00:00Z"}, **hpa()}
    v1.strategy.default(obj)
    assert obj["spec"]["minReplicas"] == 1
    expected = {
        "Name": "x",
        "Reference": "Deployment/d",
        "Targets": "cpu: <unknown>/80%",
        "MinPods": "1",
        "MaxPods": 3,
        "Replicas": 0,
        "Age": "24h",
    }
    assert v1.cells(obj) == v1.cells(from_v1(obj)) == expected


def test_targets_cell(lifecycle: Any) -> None:
    hpas = lifecycle("autoscaling/v2", "HorizontalPodAutoscaler")
    obj, _, _ = hpas.create(hpa(metrics=METRICS))
    assert hpas.cells(obj)["Targets"] == "memory: <unknown>/1Gi, <unknown>/1 + 4 more..."
