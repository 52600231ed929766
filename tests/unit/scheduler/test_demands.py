"""Pods with equal requirements share a demand, also while they start; a Pod that is being resized has another one."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.scheduler.cluster_events import Action, pod_changes
from setpoint.scheduler.snapshot import Snapshot

Obj = dict[str, Any]


def a_pod(requests: Obj, status: Obj, generation: int | None = 1) -> Obj:
    meta: Obj = {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "web"}}
    if generation is not None:
        meta["generation"] = generation
    containers = [{"name": "main", "image": "i", "resources": {"requests": requests}}]
    return {"metadata": meta, "spec": {"containers": containers, "schedulerName": "s"}, "status": status}


def given(requests: Obj, **more: Any) -> Obj:
    entry = {"name": "main", "allocatedResources": requests, "resources": {"requests": requests}}
    return {"containerStatuses": [entry], **more}


CPU, MORE = {"cpu": "10m"}, {"cpu": "20m"}


@pytest.mark.parametrize(
    ("after", "same", "changes"),
    [
        pytest.param(a_pod(CPU, given(CPU)), True, [Action.OTHER], id="started"),
        pytest.param(a_pod(CPU, given(CPU), None), True, [Action.OTHER], id="started, of a server without generations"),
        pytest.param(a_pod(MORE, given(CPU), 2), False, [Action.POD_SCALE_UP], id="wants more"),
        pytest.param(a_pod(CPU, given(MORE)), False, [Action.POD_SCALE_UP], id="still has more"),
        pytest.param(
            a_pod(CPU, given(CPU, resources={"requests": MORE}, allocatedResources=MORE)), False, [Action.POD_SCALE_UP],
            id="has more as a whole",
        ),
    ],
)  # fmt: skip
def test_a_demand_is_what_was_asked_and_given(after: Obj, same: bool, changes: list[Action]) -> None:
    before = a_pod(CPU, {}, after["metadata"].get("generation") and 1)
    demands = Snapshot().demands
    first = demands.of(before)
    for found in (demands.of(after), demands.of(after, (before, first))):
        assert (found is first) == same
        assert found.requests == Snapshot().demands.of(after).requests
    assert pod_changes(before, after) == changes
