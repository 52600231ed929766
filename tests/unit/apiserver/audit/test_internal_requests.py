"""Requests of the server to itself are in the audit log and in the metrics, like those of clients."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from audit_harness import RecordingSink, audit
from custom_resource_harness import CRDS, GROUP, CustomResourceHarness
from server_harness import ServerHarness, settle

from setpoint.apiserver import internal_writes
from setpoint.meta.errors import Conflict, InternalError
from setpoint.meta.objects import Obj
from setpoint.store.interface import Put, StoreError

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
MAPS = "/api/v1/namespaces/default/configmaps"
FLOWS = "flowcontrol.apiserver.k8s.io"


@pytest.fixture
async def definitions() -> AsyncIterator[CustomResourceHarness]:
    harness = await CustomResourceHarness.open()
    assert isinstance(harness, CustomResourceHarness)
    yield harness
    await harness.end()


def own(events: list[Obj]) -> list[Obj]:
    return [event for event in events if event["user"]["username"] == "system:apiserver"]


async def counted(harness: ServerHarness, **labels: str) -> int:
    """Return how many requests the metrics count with these labels."""
    text = (await harness.get("/metrics")).body.decode()
    found = 0
    for line in text.splitlines():
        given = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if line.startswith("apiserver_request_total{") and labels.items() <= given.items():
            found += int(float(line.rpartition(" ")[2]))
    return found


async def test_the_usage_of_a_quota_is_a_request_of_the_server(harness: ServerHarness) -> None:
    """Admission of a client's write causes it, as upstream."""
    await harness.make(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "5"}}})
    await harness.put(
        f"{QUOTAS}/q/status",
        (await harness.get(f"{QUOTAS}/q")).json
        | {"status": {"hard": {"configmaps": "5"}, "used": {"configmaps": "0"}}},
    )
    before = await counted(harness, verb="PUT", resource="resourcequotas", subresource="status", code="200")
    sink = audit(harness, {"level": "RequestResponse"}, omitManagedFields=True)
    await harness.make(MAPS, {"metadata": {"name": "one"}})
    came, went = own(sink.drain())
    assert (came["stage"], went["stage"]) == ("RequestReceived", "ResponseComplete")
    assert went["requestURI"] == f"{QUOTAS}/q/status"
    assert went["verb"] == "update"
    assert went["user"] == {"username": "system:apiserver", "groups": ["system:authenticated", "system:masters"]}
    assert went["sourceIPs"] == ["::1"]
    assert re.fullmatch(r"kube-apiserver/v1\.\d+\.\d+\S* \(\S+/\S+\) kubernetes/\w+", went["userAgent"])
    ref = {name: went["objectRef"][name] for name in ("resource", "namespace", "name", "apiVersion", "subresource")}
    assert ref == {
        "resource": "resourcequotas",
        "namespace": "default",
        "name": "q",
        "apiVersion": "v1",
        "subresource": "status",
    }
    assert went["annotations"] == {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}
    assert went["responseStatus"] == {"metadata": {}, "code": 200}
    assert went["requestObject"]["status"]["used"] == {"configmaps": "1"}
    assert (went["responseObject"]["kind"], went["responseObject"]["status"]["used"]) == (
        "ResourceQuota",
        {"configmaps": "1"},
    )
    assert went["auditID"] == came["auditID"]
    after = await counted(harness, verb="PUT", resource="resourcequotas", subresource="status", code="200")
    assert after == before + 1


async def test_creations_updates_and_deletions_have_the_form_of_requests(definitions: CustomResourceHarness) -> None:
    sink = audit(definitions, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    definitions.begin()
    await definitions.define()
    await definitions.delete(f"{CRDS}/foos.{GROUP}")
    await settle(60)
    events = own(sink.drain())
    services, name = "/apis/apiregistration.k8s.io/v1/apiservices", f"v1.{GROUP}"
    found = [(event["verb"], event["requestURI"], event["responseStatus"]["code"]) for event in events]
    assert ("update", f"{CRDS}/foos.{GROUP}/status", 200) in found
    assert ("create", services, 201) in found
    assert ("delete", f"{services}/{name}", 200) in found
    created = next(event for event in events if event["verb"] == "create")
    assert (created["objectRef"]["name"], created["requestObject"]["kind"]) == (name, "APIService")
    assert created["responseObject"]["metadata"]["uid"]
    deleted = next(event for event in events if event["verb"] == "delete" and event["requestURI"].startswith(services))
    assert deleted["requestObject"]["preconditions"]["uid"] == created["responseObject"]["metadata"]["uid"]
    assert deleted["requestObject"]["kind"] == "DeleteOptions"
    assert deleted["responseObject"]["status"] == "Success"
    group = {"group": "apiregistration.k8s.io", "resource": "apiservices"}
    assert await counted(definitions, verb="POST", scope="cluster", code="201", **group) == 1
    assert await counted(definitions, verb="DELETE", scope="resource", code="200", **group) == 1


async def test_a_status_is_applied_with_its_field_manager(harness: ServerHarness) -> None:
    schema = {
        "metadata": {"name": "f"},
        "spec": {"priorityLevelConfiguration": {"name": "exempt"}, "matchingPrecedence": 5},
    }
    await harness.make(f"/apis/{FLOWS}/v1/flowschemas", schema)
    sink = audit(harness, {"level": "Request"}, omitStages=["RequestReceived"])
    status: Obj = {"conditions": [{"type": "Dangling", "status": "True"}]}
    await internal_writes.apply_status(harness.api.resources, FLOWS, "flowschemas", "f", status, "consumer")
    (event,) = sink.drain()
    assert event["verb"] == "patch"
    assert event["requestURI"] == f"/apis/{FLOWS}/v1/flowschemas/f/status?fieldManager=consumer&force=true"
    assert event["requestObject"]["status"] == status
    assert "responseObject" not in event


async def test_the_policy_decides(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "None", "users": ["system:apiserver"]}, {"level": "Metadata"})
    api = harness.api.resources
    await internal_writes.ensure(api, "", "configmaps", {"metadata": {"name": "m", "namespace": "default"}})
    assert sink.drain() == []
    sink = audit(harness, {"level": "Metadata", "users": ["system:apiserver"]}, {"level": "None"})
    await internal_writes.update(api, "", "configmaps", "default", "m", lambda obj: obj.update(data={"a": "b"}))
    await harness.make(MAPS, {"metadata": {"name": "of-a-client"}})
    assert [event["objectRef"]["name"] for event in sink.drain()] == ["m", "m"]


class Failing:
    """Changes that fail in each of the ways in which a write can fail."""

    @staticmethod
    def conflict(obj: Obj) -> None:
        raise Conflict.modified("", "configmaps", "m")

    @staticmethod
    def store(obj: Obj) -> None:
        raise StoreError("the disk is full")

    @staticmethod
    def bug(obj: Obj) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("change", "stage", "code", "message"),
    [
        (Failing.conflict, "ResponseComplete", 409, "the object has been modified"),
        (Failing.store, "ResponseComplete", 500, "the disk is full"),
        (Failing.bug, "Panic", 500, "APIServer panic'd: ZeroDivisionError"),
    ],
)
async def test_failures_are_recorded(harness: ServerHarness, change: Any, stage: str, code: int, message: str) -> None:
    await harness.make(MAPS, {"metadata": {"name": "m"}})
    sink = audit(harness, {"level": "Metadata"}, omitStages=["RequestReceived"])
    with pytest.raises((Conflict, StoreError, ZeroDivisionError)):
        await internal_writes.update(harness.api.resources, "", "configmaps", "default", "m", change)
    (event,) = sink.drain()
    assert (event["stage"], event["responseStatus"]["code"]) == (stage, code)
    assert message in event["responseStatus"]["message"]
    expected = 0 if stage == "Panic" else 1
    assert await counted(harness, verb="PUT", resource="configmaps", scope="resource", code=str(code)) == expected


async def test_an_object_that_is_missing_is_a_404_for_the_log_only(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Metadata"}, omitStages=["RequestReceived"])
    api = harness.api.resources
    assert await internal_writes.update(api, "", "configmaps", "default", "gone", lambda obj: None) is None
    assert [event["responseStatus"]["code"] for event in sink.drain()] == [404]


async def test_nothing_is_written_if_a_strict_log_fails(harness: ServerHarness) -> None:
    sink: RecordingSink = audit(harness, {"level": "Metadata"})
    sink.succeeds = False
    api, obj = harness.api.resources, {"metadata": {"name": "m", "namespace": "default"}}
    with pytest.raises(InternalError, match="failed to store audit event"):
        await internal_writes.ensure(api, "", "configmaps", obj)
    assert internal_writes.current(api, "", "configmaps", "default", "m") is None
    sink.succeeds = True
    assert await counted(harness, verb="POST", resource="configmaps", code="500") == 1


async def test_bookkeeping_of_the_store_is_no_request(harness: ServerHarness) -> None:
    """As upstream, which writes it to etcd directly."""
    sink = audit(harness, {"level": "Metadata"})
    await harness.api.resources.env.transactions.commit_internal("repair", "", [Put("ranges/nodeports", b"{}", None)])
    ports = [{"port": 80, "nodePort": 30080}]
    spec = {"type": "NodePort", "ports": ports}
    await harness.make("/api/v1/namespaces/default/services", {"metadata": {"name": "s"}, "spec": spec})
    assert own(sink.drain()) == []
