from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.kinds.core.pod_binding import binding_refusal, bound, evicted, ignores_disruption_budget, validate_binding
from setpoint.meta.field import FieldError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEDULED = {
    "type": "PodScheduled",
    "status": "True",
    "lastProbeTime": None,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def pod(meta: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", **(meta or {})}, "spec": spec, "status": status or {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"name": "n1"}, []),
        ({"kind": "Node", "name": "n1"}, []),
        (
            {"kind": "Pod", "name": "N_1"},
            ['target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"'],
        ),
        ({}, ["target.name: Required value"]),
    ],
)
def test_validate_binding(target: dict[str, Any], expected: list[str]) -> None:
    errs: list[FieldError] = []
    validate_binding({"target": target}, errs)
    assert [error.message() for error in errs] == expected


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod(), ""),
        (pod(nodeName="n"), 'pod p is already assigned to node "n"'),
        (pod({"deletionTimestamp": "x"}), "pod p is being deleted, cannot be assigned to a host"),
        (pod(schedulingGates=[{"name": "g"}]), "pod p has non-empty .spec.schedulingGates"),
    ],
)
def test_binding_refusals(obj: dict[str, Any], expected: str) -> None:
    assert binding_refusal(obj) == expected


def test_bound() -> None:
    old = pod({"labels": {"a": "1"}, "generation": 1}, {"phase": "Pending", "nominatedNodeName": "m"})
    new = bound(old, {"metadata": {"labels": {"zone": "z"}, "annotations": {"b": "c"}}, "target": {"name": "n1"}}, NOW)
    assert new == {
        "metadata": {"name": "p", "labels": {"a": "1", "zone": "z"}, "annotations": {"b": "c"}, "generation": 1},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Pending", "conditions": [SCHEDULED]},
    }
    assert old["spec"] == {} and old["status"]["nominatedNodeName"] == "m"


def test_transition_time_changes_only_with_the_status() -> None:
    earlier = {**SCHEDULED, "lastTransitionTime": "2025-01-01T00:00:00Z"}
    old = pod(status={"phase": "Pending", "conditions": [earlier]})
    assert bound(old, {"target": {"name": "n"}}, NOW)["status"]["conditions"] == [earlier]


def test_evicted() -> None:
    (condition,) = evicted(pod(), NOW)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


@pytest.mark.parametrize(("phase", "expected"), [("Pending", True), ("Succeeded", True), ("Running", False)])
def test_pods_that_ignore_disruption_budgets(phase: str, expected: bool) -> None:
    assert ignores_disruption_budget(pod(status={"phase": phase})) is expected
