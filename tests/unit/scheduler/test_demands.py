"""Pods with equal requirements share a demand, also while they start; a Pod that is being resized has another one."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.scheduler.cluster_events import Action, pod_changes
from setpoint.scheduler.snapshot import Snapshot


def a_pod(requests: Any, status: Any, generation: int | None = 1) -> Any:
    meta: Any = {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "web"}}
    if generation is not None:
        meta["generation"] = generation
    containers = [{"name": "main", "image": "i", "resources": {"requests": requests}}]
    return {"metadata": meta, "spec": {"containers": containers, "schedulerName": "s"}, "status": status}


def with_allocation(requests: Any, **more: Any) -> Any:
    entry = {"name": "main", "allocatedResources": requests, "resources": {"requests": requests}}
    return {"containerStatuses": [entry], **more}


CPU, MORE = {"cpu": "10m"}, {"cpu": "20m"}


@pytest.mark.parametrize(
    ("after", "same", "changes"),
    [
        pytest.param(a_pod(CPU, with_allocation(CPU)), True, [Action.OTHER], id="started"),
        pytest.param(
            a_pod(CPU, with_allocation(CPU), None), True, [Action.OTHER], id="started, of a server without generations"
        ),
        pytest.param(a_pod(MORE, with_allocation(CPU), 2), False, [Action.POD_SCALE_UP], id="wants more"),
        pytest.param(a_pod(CPU, with_allocation(MORE)), False, [Action.POD_SCALE_UP], id="still has more"),
        pytest.param(
            a_pod(CPU, with_allocation(CPU, resources={"requests": MORE}, allocatedResources=MORE)),
            False,
            [Action.POD_SCALE_UP],
            id="has more as a whole",
        ),
    ],
)
def test_demand_of_requested_and_allocated_resources(after: Any, same: bool, changes: list[Action]) -> None:
    before = a_pod(CPU, {}, after["metadata"].get("generation") and 1)
    demands = Snapshot().demands
    first = demands.of(before)
    for found in (demands.of(after), demands.of(after, (before, first))):
        assert (found is first) == same
        assert found.requests == Snapshot().demands.of(after).requests
    assert pod_changes(before, after) == changes
