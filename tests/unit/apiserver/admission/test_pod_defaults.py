"""Plugins that set defaults of Pods and nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from admission_attributes import ObjectReader, pod, write

from setpoint.apiserver.admission.default_toleration_seconds import DefaultTolerationSeconds
from setpoint.apiserver.admission.extended_resource_toleration import ExtendedResourceToleration
from setpoint.apiserver.admission.pod_node_selector import PodNodeSelector
from setpoint.apiserver.admission.pod_topology_labels import PodTopologyLabels
from setpoint.apiserver.admission.priority import Priority
from setpoint.apiserver.admission.runtime_class import RuntimeClass
from setpoint.apiserver.admission.taint_nodes_by_condition import TaintNodesByCondition
from setpoint.meta.errors import Forbidden

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    ("tolerations", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}], [UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    ],
)
async def test_default_toleration_seconds(tolerations: list[Any], added: list[str]) -> None:
    attrs = write("pods", pod({"tolerations": tolerations} if tolerations else None))
    await DefaultTolerationSeconds().mutate(attrs)
    assert attrs.obj is not None
    found = attrs.obj["spec"].get("tolerations", [])[len(tolerations) :]
    assert [(one["key"], one["effect"], one["tolerationSeconds"]) for one in found] == [
        (key, "NoExecute", 300) for key in added
    ]


async def test_other_tasks_run_while_many_tolerations_are_examined() -> None:
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count)

    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(50_000)]
    tolerations[-1]["key"] = NOT_READY
    attrs = write("pods", pod({"tolerations": tolerations}))
    asyncio.get_running_loop().call_soon(count)
    await DefaultTolerationSeconds().mutate(attrs)
    assert attrs.obj is not None
    assert [one["key"] for one in attrs.obj["spec"]["tolerations"][50_000:]] == [UNREACHABLE]
    assert turns >= 10


async def test_a_new_node_is_tainted() -> None:
    taint = {"key": NOT_READY, "effect": "NoSchedule"}
    for spec in ({}, {"taints": [taint]}):
        attrs = write("nodes", {"metadata": {"name": "n"}, "spec": spec})
        await TaintNodesByCondition().mutate(attrs)
        assert attrs.obj is not None
        assert attrs.obj["spec"]["taints"] == [taint]


@pytest.fixture
def classes(reader: ObjectReader) -> ObjectReader:
    for name, value, more in (("low", 5, {}), ("high", 100, {"preemptionPolicy": "Never"})):
        reader.put("scheduling.k8s.io", "priorityclasses", "", name, value=value, **more)
    return reader


async def resolved(reader: ObjectReader, spec: dict[str, Any]) -> dict[str, Any]:
    attrs = write("pods", pod(spec))
    await Priority(reader).mutate(attrs)
    assert attrs.obj is not None
    keys = ("priorityClassName", "priority", "preemptionPolicy")
    return {key: attrs.obj["spec"][key] for key in keys if key in attrs.obj["spec"]}


async def test_a_class_sets_the_priority(classes: ObjectReader) -> None:
    assert await resolved(classes, {"priorityClassName": "high"}) == {
        "priorityClassName": "high",
        "priority": 100,
        "preemptionPolicy": "Never",
    }
    assert await resolved(classes, {}) == {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}


async def test_the_lowest_of_several_defaults(classes: ObjectReader) -> None:
    for name in ("low", "high"):
        classes.objects[("scheduling.k8s.io", "priorityclasses", "", name)]["globalDefault"] = True
    assert await resolved(classes, {}) == {"priorityClassName": "low", "priority": 5}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        ({"priority": 7}, r"the integer value of priority \(7\) must not be provided .* computed 0 from"),
        (
            {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"},
            r"PreemptionPolicy \(PreemptLowerPriority\) must not be provided .* computed Never from",
        ),
    ],
)
async def test_the_priority_cannot_be_chosen_freely(classes: ObjectReader, spec: dict[str, Any], why: str) -> None:
    with pytest.raises(Forbidden, match=why):
        await resolved(classes, spec)


async def test_an_update_keeps_the_priority(classes: ObjectReader) -> None:
    attrs = write("pods", pod(), pod({"priority": 100, "preemptionPolicy": "Never"}))
    await Priority(classes).mutate(attrs)
    assert attrs.obj is not None
    assert attrs.obj["spec"]["priority"] == 100
    assert attrs.obj["spec"]["preemptionPolicy"] == "Never"


async def test_only_one_default_class(classes: ObjectReader) -> None:
    group, plural = "scheduling.k8s.io", "priorityclasses"
    classes.objects[(group, plural, "", "low")]["globalDefault"] = True
    new = {"metadata": {"name": "new"}, "value": 1, "globalDefault": True}
    with pytest.raises(Forbidden, match=r"PriorityClass low is already marked as default\. Only one default"):
        await Priority(classes).validate(write(plural, new, group=group))
    same = {"metadata": {"name": "low"}, "value": 5, "globalDefault": True}
    await Priority(classes).validate(write(plural, same, dict(same), group=group))


async def test_a_runtime_class_sets_overhead_and_scheduling(reader: ObjectReader) -> None:
    reader.put(
        "node.k8s.io",
        "runtimeclasses",
        "",
        "vm",
        overhead={"podFixed": {"cpu": "100m"}},
        scheduling={"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
    )
    narrow = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
    attrs = write("pods", pod({"runtimeClassName": "vm", "nodeSelector": {"c": "d"}, "tolerations": [narrow]}))
    await RuntimeClass(reader).mutate(attrs)
    await RuntimeClass(reader).validate(attrs)
    assert attrs.obj is not None
    spec = attrs.obj["spec"]
    assert spec["overhead"] == {"cpu": "100m"}
    assert spec["nodeSelector"] == {"c": "d", "a": "b"}
    assert spec["tolerations"] == [{"key": "k", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"runtimeClassName": "none"}, 'RuntimeClass "none" not found'),
        ({"runtimeClassName": "vm", "overhead": {"cpu": "1"}}, "Overhead doesn't match"),
        ({"runtimeClassName": "vm", "nodeSelector": {"a": "c"}}, r"\[a\] = b; pod.spec.nodeSelector\[a\] = c"),
        ({"overhead": {"cpu": "1"}}, "Overhead set without corresponding RuntimeClass"),
    ],
)
async def test_pods_that_contradict_their_runtime_class(reader: ObjectReader, spec: dict[str, Any], why: str) -> None:
    reader.put(
        "node.k8s.io",
        "runtimeclasses",
        "",
        "vm",
        overhead={"podFixed": {"cpu": "100m"}},
        scheduling={"nodeSelector": {"a": "b"}},
    )
    attrs = write("pods", pod(spec))
    with pytest.raises(Forbidden, match=why):
        await RuntimeClass(reader).mutate(attrs)
        await RuntimeClass(reader).validate(attrs)


async def test_zone_and_region_are_copied_from_the_node(reader: ObjectReader) -> None:
    labels = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"}
    reader.put("", "nodes", "", "n", metadata={"labels": labels})
    on_node = write("pods", pod({"nodeName": "n"}, labels={"topology.kubernetes.io/zone": "mine"}))
    binding = write("pods", {"metadata": {}, "target": {"kind": "Node", "name": "n"}}, subresource="binding")
    for attrs in (on_node, binding):
        await PodTopologyLabels(reader).mutate(attrs)
        assert attrs.obj is not None
        assert attrs.obj["metadata"]["labels"] == {
            "topology.kubernetes.io/zone": "z",
            "topology.kubernetes.io/region": "r",
        }


async def test_extended_resources_add_tolerations() -> None:
    attrs = write("pods", pod(container={"resources": {"requests": {"example.com/gpu": "1", "cpu": "1"}}}))
    await ExtendedResourceToleration().mutate(attrs)
    await ExtendedResourceToleration().mutate(attrs)
    assert attrs.obj is not None
    assert attrs.obj["spec"]["tolerations"] == [
        {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


async def test_node_selector_of_a_namespace(reader: ObjectReader) -> None:
    annotation = {"scheduler.alpha.kubernetes.io/node-selector": "pool=a, disk=ssd"}
    reader.put("", "namespaces", "", "ns", metadata={"annotations": annotation})
    attrs = write("pods", pod({"nodeSelector": {"x": "y"}}))
    await PodNodeSelector(reader).mutate(attrs)
    assert attrs.obj is not None
    assert attrs.obj["spec"]["nodeSelector"] == {"pool": "a", "disk": "ssd", "x": "y"}
    with pytest.raises(Forbidden, match="conflicts with its namespace node label selector"):
        await PodNodeSelector(reader).mutate(write("pods", pod({"nodeSelector": {"pool": "b"}})))
