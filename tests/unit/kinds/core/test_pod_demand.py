from __future__ import annotations

from typing import Any

from setpoint.kinds.core.pod_demand import has_pod_level_resources, pod_limits, pod_requests


def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **more}


def test_requests_are_the_maximum_of_containers_and_init_containers() -> None:
    spec = {
        "containers": [container("a", "100m"), container("b", "200m")],
        "initContainers": [container("s", "50m", restartPolicy="Always"), container("i", "900m")],
        "overhead": {"cpu": "10m", "memory": "1Mi"},
    }
    assert pod_requests({"spec": spec}) == {"cpu": "960m", "memory": "1Mi"}
    assert pod_limits({"spec": spec}) == {"cpu": "960m"}


def test_pod_level_resources_take_precedence() -> None:
    spec = {"containers": [container("a", "1")], "resources": {"requests": {"cpu": "3", "example.com/x": "1"}}}
    assert pod_requests({"spec": spec}) == {"cpu": "3"}
    assert has_pod_level_resources(spec)
    assert not has_pod_level_resources({"containers": []})


def resizing(wanted: str, allocated: str, actual: str, reason: str = "") -> dict[str, Any]:
    status = {
        "containerStatuses": [
            {"name": "a", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}}
        ]
    }
    if reason:
        status["conditions"] = [{"type": "PodResizePending", "reason": reason}]
    return {"spec": {"containers": [container("a", wanted)]}, "status": status}


def test_requests_during_a_resize_are_the_maximum() -> None:
    assert pod_requests(resizing("1", "2", "3")) == {"cpu": "3"}
    assert pod_requests(resizing("4", "2", "3")) == {"cpu": "4"}
    assert pod_requests(resizing("4", "2", "3", "Deferred")) == {"cpu": "4"}


def test_an_infeasible_resize_does_not_count() -> None:
    assert pod_requests(resizing("4", "2", "1", "Infeasible")) == {"cpu": "2"}
