from __future__ import annotations

from typing import Any

import pytest

from setpoint.meta.objects import Obj

TEMPLATE: Obj = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def controllers(lifecycle: Any) -> Any:
    return lifecycle("v1", "ReplicationController")


def test_selector_and_labels_default_to_those_of_the_template(controllers: Any) -> None:
    obj = controllers.created({"spec": {"template": TEMPLATE}})
    assert obj["spec"]["selector"] == obj["metadata"]["labels"] == {"a": "b"}
    assert obj["spec"]["replicas"] == 1
    obj["metadata"]["labels"]["c"] = "d"
    assert obj["spec"]["selector"] == {"a": "b"}
    assert controllers.created({"spec": {"template": TEMPLATE, "replicas": 0}})["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, ["spec.selector: Required value", "spec.template: Required value"]),
        (
            {"template": TEMPLATE, "selector": {"x": "y"}},
            ['spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`'],
        ),
        (
            {"template": TEMPLATE, "replicas": -1},
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
            ['spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"'],
        ),
    ],
)
def test_rules(controllers: Any, spec: dict[str, Any], expected: list[str]) -> None:
    assert controllers.errors({"spec": spec}) == expected


def test_status(controllers: Any) -> None:
    old = controllers.created({"spec": {"template": TEMPLATE}})
    status = {"replicas": 1, "readyReplicas": 2, "availableReplicas": 1}
    assert controllers.put(old, {"status": status}, "status")[1] == [
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"
    ]


def test_row(controllers: Any) -> None:
    row = controllers.cells(controllers.created({"spec": {"template": TEMPLATE, "replicas": 3}}))
    assert row == {
        "Name": "x",
        "Desired": 3,
        "Current": 0,
        "Ready": 0,
        "Age": "24h",
        "Containers": "c",
        "Images": "i",
        "Selector": "a=b",
    }
