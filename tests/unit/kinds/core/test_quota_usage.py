from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from setpoint.kinds.core.quota_usage import meter, scopes_of
from setpoint.meta.objects import Obj

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def usage(plural: str, obj: Obj, group: str = "") -> dict[str, str]:
    found = meter(group, plural)
    assert found is not None
    return found.usage(obj, NOW)


def pod(status: Obj | None = None, **metadata: Any) -> Obj:
    resources = {
        "requests": {"cpu": "1", "example.com/gpu": "2", "hugepages-2Mi": "4Mi"},
        "limits": {"memory": "1Gi"},
    }
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def test_a_pod_uses_what_it_requests() -> None:
    assert usage("pods", pod()) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1",
        "requests.cpu": "1",
        "limits.memory": "1Gi",
        "requests.example.com/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
    }


@pytest.mark.parametrize(
    "done",
    [
        pod({"phase": "Succeeded"}),
        pod({"phase": "Failed"}),
        pod(deletionTimestamp="2025-12-31T23:59:00Z", deletionGracePeriodSeconds=30),
    ],
)
def test_a_completed_pod_counts_only_as_an_object(done: Obj) -> None:
    assert usage("pods", done) == {"count/pods": "1"}


def test_a_terminating_pod_is_charged_until_its_deadline() -> None:
    assert "cpu" in usage("pods", pod(deletionTimestamp="2025-12-31T23:59:50Z", deletionGracePeriodSeconds=30))


@pytest.mark.parametrize(
    ("spec", "node_ports", "balancers"),
    [
        ({"type": "ClusterIP"}, "0", "0"),
        ({"type": "NodePort"}, "2", "0"),
        ({"type": "LoadBalancer"}, "2", "1"),
        ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, "1", "1"),
    ],
)
def test_services(spec: Obj, node_ports: str, balancers: str) -> None:
    obj = {"metadata": {}, "spec": {"ports": [{"port": 1, "nodePort": 30000}, {"port": 2}], **spec}}
    assert usage("services", obj) == {
        "count/services": "1",
        "services": "1",
        "services.nodeports": node_ports,
        "services.loadbalancers": balancers,
    }


def test_claims_count_in_whole_bytes_and_by_class() -> None:
    obj: Obj = {"metadata": {}, "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1500m"}}}}
    assert usage("persistentvolumeclaims", obj) == {
        "persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "1",
        "requests.storage": "2",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "2",
    }
    obj["status"] = {"allocatedResources": {"storage": "1Gi"}}
    assert usage("persistentvolumeclaims", obj)["requests.storage"] == "1Gi"


def test_device_requests_count_with_their_maximum() -> None:
    exact = {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}
    choices = {
        "firstAvailable": [
            {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3},
            {"deviceClassName": "fpga", "allocationMode": "All"},
        ]
    }
    obj = {"metadata": {}, "spec": {"devices": {"requests": [exact, choices]}}}
    assert usage("resourceclaims", obj, "resource.k8s.io") == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "5",
        "fpga.deviceclass.resource.k8s.io/devices": "32",
    }


@pytest.mark.parametrize(
    ("plural", "name", "measured"),
    [
        ("pods", "requests.example.com/gpu", True),
        ("pods", "requests.storage", False),
        ("pods", "services", False),
        ("persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage", True),
        ("persistentvolumeclaims", "storage", False),
        ("configmaps", "configmaps", True),
        ("configmaps", "count/configmaps", True),
        ("endpoints", "endpoints", False),
        ("endpoints", "count/endpoints", True),
    ],
)
def test_names_of_quotas(plural: str, name: str, measured: bool) -> None:
    found = meter("", plural)
    assert found is not None
    assert found.measures(name) is measured


@pytest.mark.parametrize(
    ("operator", "values", "given", "selected"),
    [
        ("Exists", [], "a", True),
        ("Exists", [], "", False),
        ("DoesNotExist", [], "", True),
        ("In", ["a"], "a", True),
        ("In", ["a"], "b", False),
        ("In", ["a"], "", False),
        ("NotIn", ["a"], "b", True),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], "", True),
    ],
)
def test_scopes_of_priority(operator: str, values: list[str], given: str, selected: bool) -> None:
    found = meter("", "pods")
    assert found is not None
    scope = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    assert found.in_scope(scope, {"metadata": {}, "spec": {"priorityClassName": given}}) is selected


def test_both_ways_to_write_scopes() -> None:
    selector = {"scopeName": "PriorityClass", "operator": "DoesNotExist"}
    quota = {"spec": {"scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [selector]}}}
    assert scopes_of(quota) == [{"scopeName": "BestEffort", "operator": "Exists"}, selector]


def test_events_and_reviews_are_not_charged() -> None:
    assert meter("", "events") is None
    assert meter("authorization.k8s.io", "selfsubjectaccessreviews") is None
