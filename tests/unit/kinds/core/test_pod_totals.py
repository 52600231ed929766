from __future__ import annotations

from typing import Any

from setpoint.kinds.core.pod_totals import has_pod_level_resources, pod_limits, pod_requests


def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}, **more}


def test_containers_add_up_and_the_greatest_init_container_counts() -> None:
    spec = {
        "containers": [container("a", "100m"), container("b", "200m")],
        "initContainers": [container("s", "50m", restartPolicy="Always"), container("i", "900m")],
        "overhead": {"cpu": "10m", "memory": "1Mi"},
    }
    assert pod_requests({"spec": spec}) == {"cpu": "960m", "memory": "1Mi"}
    assert pod_limits({"spec": spec}) == {"cpu": "960m"}


def test_the_pods_own_level_goes_before() -> None:
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


def test_while_a_pod_is_resized_the_greatest_counts() -> None:
    assert pod_requests(resizing("1", "2", "3")) == {"cpu": "3"}
    assert pod_requests(resizing("4", "2", "3")) == {"cpu": "4"}
    assert pod_requests(resizing("4", "2", "3", "Deferred")) == {"cpu": "4"}


def test_what_the_node_cannot_give_does_not_count() -> None:
    assert pod_requests(resizing("4", "2", "1", "Infeasible")) == {"cpu": "2"}
