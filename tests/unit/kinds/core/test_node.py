from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def nodes(lifecycle: Any) -> Any:
    return lifecycle("v1", "Node")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"podCIDR": "10.1.0.0/24"}, ("10.1.0.0/24", ["10.1.0.0/24"])),
        ({"podCIDRs": ["10.2.0.0/24", "fd00::/64"]}, ("10.2.0.0/24", ["10.2.0.0/24", "fd00::/64"])),
        ({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.2.0.0/24", "fd00::/64"]}, ("10.1.0.0/24", ["10.1.0.0/24"])),
    ],
)
def test_the_single_cidr_is_the_first(nodes: Any, given: dict[str, Any], expected: tuple[str, list[str]]) -> None:
    spec = nodes.created({"spec": given})["spec"]
    assert (spec["podCIDR"], spec["podCIDRs"]) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"podCIDRs": ["10.2.0.1/24"]},
            ['spec.podCIDRs[0]: Invalid value: "10.2.0.1/24": must not have bits set beyond the prefix length'],
        ),
        (
            {"podCIDRs": ["010.2.0.0/24"]},
            ['spec.podCIDRs[0]: Invalid value: "010.2.0.0/24": must not have leading 0s in IP or prefix length'],
        ),
        (
            {"podCIDRs": ["10.2.0.0/24", "10.3.0.0/24"]},
            [
                'spec.podCIDRs: Invalid value: ["10.2.0.0/24","10.3.0.0/24"]: '
                "may specify no more than one CIDR for each IP family"
            ],
        ),
        (
            {"taints": [{"key": "a", "effect": "X"}]},
            [
                'metadata.taints[0].effect: Unsupported value: "X": '
                'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            ],
        ),
        (
            {"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "value": "b", "effect": "NoExecute"}]},
            [
                'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"b","Effect":"NoExecute","TimeAdded":null}: '
                "taints must be unique by key and effect pair"
            ],
        ),
    ],
)
def test_spec_rules(nodes: Any, spec: dict[str, Any], expected: list[str]) -> None:
    assert nodes.errors({"spec": spec}) == expected


def test_status_may_be_given_at_creation(nodes: Any) -> None:
    body = {"status": {"capacity": {"cpu": "1", "memory": "1"}, "config": {}}, "spec": {"configSource": {}}}
    obj = nodes.created(body)
    assert obj["status"]["allocatable"] == {"cpu": "1", "memory": "1"}
    assert "config" not in obj["status"] and "configSource" not in obj["spec"]
    errors = nodes.errors({"status": {"capacity": {"pods": "1.5"}, "allocatable": {"cpu": "-1"}}})
    assert errors == [
        'status.capacity.pods: Invalid value: "1500m": must be an integer',
        'status.allocatable.cpu: Invalid value: "-1": must be greater than or equal to 0',
    ]
    assert nodes.errors({"status": {"declaredFeatures": ["B", "A", "A"]}}) == [
        'status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically',
        'status.declaredFeatures[2]: Duplicate value: "A"',
    ]


def test_immutable_fields_of_a_node(nodes: Any) -> None:
    old = nodes.created({"spec": {"podCIDR": "10.1.0.0/24", "providerID": "a"}})
    fixed = 'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'
    assert nodes.put(old, {"spec": {"podCIDR": "10.2.0.0/24", "providerID": "a"}})[1] == [fixed]
    assert nodes.put(old, {"spec": {"podCIDR": "10.1.0.0/24", "providerID": "b"}})[1] == [
        "spec.providerID: Invalid value: null: field cannot be modified once set"
    ]
    assert nodes.put(old, {"spec": {"podCIDR": "10.1.0.0/24"}})[1] == [
        "spec.providerID: Invalid value: null: field cannot be cleared once set"
    ]
    twice = {"addresses": [{"type": "A", "address": "b"}] * 2}
    changed, errors = nodes.put(old, {"spec": {}, "status": twice}, "status")
    assert errors == ['status.addresses[1]: Duplicate value: {"Type":"A","Address":"b"}']
    assert changed["spec"] is old["spec"]


def test_legacy_annotations_are_still_validated(nodes: Any) -> None:
    taints, avoid = "scheduler.alpha.kubernetes.io/taints", "scheduler.alpha.kubernetes.io/preferAvoidPods"
    annotations = {taints: "x", avoid: '{"preferAvoidPods":[{"podSignature":{}}]}'}
    assert nodes.errors({"metadata": {"annotations": annotations}}) == [
        f"metadata.annotations: Invalid value: \"{taints}\": invalid character 'x' looking for beginning of value",
        f"metadata.annotations.{avoid}[0].PodSignature: Required value",
    ]


def test_row(nodes: Any) -> None:
    obj = nodes.created(
        {
            "metadata": {"labels": {"node-role.kubernetes.io/b": "", "kubernetes.io/role": "a"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kernelVersion": "6.1", "architecture": "arm64", "kubeletVersion": "v1"},
            },
        }
    )
    assert nodes.cells(obj) == {
        "Name": "x",
        "Status": "NotReady,SchedulingDisabled",
        "Roles": "a,b",
        "Age": "24h",
        "Version": "v1",
        "Internal-IP": "10.0.0.1",
        "External-IP": "<none>",
        "OS-Image": "<unknown>",
        "Kernel-Version": "6.1 (arm64)",
        "Container-Runtime": "<unknown>",
    }
    assert nodes.strategy.selectable_fields(obj) == {"spec.unschedulable": "true"}
