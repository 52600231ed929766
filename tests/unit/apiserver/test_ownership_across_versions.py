"""Fields that were written through one version of a kind are owned in every version of it."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import APPLY, ServerHarness, settle

from setpoint.meta.objects import Obj

V1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
V2 = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
EVENTS = "/api/v1/namespaces/default/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}


def v1(**spec: Any) -> Obj:
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 5, **spec}
    return {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}, "spec": spec}


def v2(utilization: int | None, **spec: Any) -> Obj:
    if utilization is not None:
        target = {"type": "Utilization", "averageUtilization": utilization}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    meta = {"name": "h"}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": spec}


async def apply(
    harness: ServerHarness, where: str, obj: Obj, manager: str, status: int = 200, *, force: bool = False
) -> Any:
    query = f"?fieldManager={manager}" + ("&force=true" if force else "")
    reply = await harness.patch(f"{where}/{obj['metadata']['name']}{query}", obj, APPLY)
    assert reply.status == status, reply.body
    return reply.json


async def owned(harness: ServerHarness, manager: str) -> Obj | None:
    entries = (await harness.get(f"{V2}/h")).json["metadata"]["managedFields"]
    found = [entry["fieldsV1"] for entry in entries if entry["manager"] == manager]
    return found[0].get("f:spec") if found else None


async def test_a_field_conflicts_with_its_owner_in_another_version(harness: ServerHarness) -> None:
    await apply(harness, V1, v1(targetCPUUtilizationPercentage=50), "a", 201)
    refused = await apply(harness, V2, v2(60), "b", 409)
    assert refused["message"] == (
        'Apply failed with 1 conflict: conflict with "a": .spec.targetCPUUtilizationPercentage'
    )
    same = await apply(harness, V2, v2(50), "b")
    assert same["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50


async def test_a_forced_apply_takes_a_field_in_every_version(harness: ServerHarness) -> None:
    await apply(harness, V1, v1(targetCPUUtilizationPercentage=50), "a", 201)
    await apply(harness, V2, v2(60), "b", force=True)
    assert "f:targetCPUUtilizationPercentage" not in ((await owned(harness, "a")) or {})
    assert "f:metrics" in ((await owned(harness, "b")) or {})
    # The other way round.
    refused = await apply(harness, V1, v1(targetCPUUtilizationPercentage=70), "a", 409)
    assert 'conflict with "b": .spec.metrics' in refused["message"]


async def test_an_update_takes_fields_from_owners_in_other_versions(harness: ServerHarness) -> None:
    await apply(harness, V1, v1(targetCPUUtilizationPercentage=50), "a", 201)
    live = (await harness.get(f"{V2}/h")).json
    live["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] = 70
    assert (await harness.put(f"{V2}/h?fieldManager=c", live)).status == 200
    assert "f:targetCPUUtilizationPercentage" not in ((await owned(harness, "a")) or {})
    live = (await harness.get(f"{V1}/h")).json
    live["spec"]["maxReplicas"] = 7
    assert (await harness.put(f"{V1}/h?fieldManager=d", live)).status == 200
    assert "f:maxReplicas" not in ((await owned(harness, "a")) or {})


async def test_fields_that_were_applied_in_another_version_are_removed(harness: ServerHarness) -> None:
    await apply(harness, V1, v1(minReplicas=3, targetCPUUtilizationPercentage=50), "a", 201)
    after = await apply(harness, V2, v2(50, scaleTargetRef=TARGET, maxReplicas=5), "a")
    assert after["spec"]["minReplicas"] == 1  # the default
    entries = [entry for entry in after["metadata"]["managedFields"] if entry["manager"] == "a"]
    assert [entry["apiVersion"] for entry in entries] == ["autoscaling/v2"]


@pytest.mark.parametrize(("first", "then"), [(EVENTS, NEW_EVENTS), (NEW_EVENTS, EVENTS)])
async def test_events_are_owned_in_both_groups(harness: ServerHarness, first: str, then: str) -> None:
    time = "2026-01-01T00:00:00.000000Z"
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
        "eventTime": time,
        "type": "Normal",
        "reason": "R",
        "action": "A",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "note": "one",
    }
    await harness.make(NEW_EVENTS, event)
    assert (await harness.patch(f"{first}/e?fieldManager=a", {"metadata": {"labels": {"l": "1"}}})).status == 200
    assert (await harness.patch(f"{then}/e?fieldManager=b", {"metadata": {"labels": {"l": "2"}}})).status == 200
    entries = (await harness.get(f"{EVENTS}/e")).json["metadata"]["managedFields"]
    owners = [
        entry["manager"] for entry in entries if "f:l" in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
    ]
    assert owners == ["b"]


async def test_custom_kinds_whose_versions_are_not_converted_share_their_owners() -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")]
    names = {"plural": "foos", "kind": "Foo"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}

    def foo(version: str, size: int) -> Obj:
        named = {"apiVersion": f"example.com/{version}", "kind": "Foo", "metadata": {"name": "f"}}
        return {**named, "spec": {"size": size}}

    async with ServerHarness.running() as harness:
        definition = {"metadata": {"name": "foos.example.com"}, "spec": spec}
        await harness.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        await settle(60)
        where = "/apis/example.com/{}/namespaces/default/foos"
        await apply(harness, where.format("v1"), foo("v1", 1), "a", 201)
        refused = await apply(harness, where.format("v2"), foo("v2", 2), "b", 409)
        assert refused["message"] == 'Apply failed with 1 conflict: conflict with "a": .spec.size'
        taken = await apply(harness, where.format("v2"), foo("v2", 2), "b", force=True)
        entries = taken["metadata"]["managedFields"]
        assert [entry["manager"] for entry in entries if "f:size" in str(entry["fieldsV1"])] == ["b"]
