"""The audit events of requests, through the API."""

from __future__ import annotations

from typing import Any

import pytest
from audit_harness import audit
from server_harness import APPLY, LIMITED_TOKEN, ServerHarness, settle

_MAP = {"metadata": {"name": "one"}, "data": {"a": "b"}}
_MAPS = "/api/v1/namespaces/default/configmaps"


def _stages(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["stage"], event.get("responseStatus", {}).get("code", 0)) for event in events]


async def test_a_read_has_two_events(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Metadata"})
    reply = await harness.get(
        "/api/v1/namespaces/default?pretty=false", headers={"x-forwarded-for": "192.0.2.7, nobody"}
    )
    came, went = sink.drain()
    assert came == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": reply.header("Audit-Id"),
        "stage": "RequestReceived",
        "requestURI": "/api/v1/namespaces/default?pretty=false",
        "verb": "get",
        "user": {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["192.0.2.7", "127.0.0.1"],
        "userAgent": "tests/1.0",
        "objectRef": {"resource": "namespaces", "namespace": "default", "name": "default", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    }
    assert list(came)[:5] == ["kind", "apiVersion", "level", "auditID", "stage"]
    assert went == came | {
        "stage": "ResponseComplete",
        "responseStatus": {"metadata": {}, "code": 200},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }


async def test_the_clients_own_audit_id_is_used(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Metadata"})
    reply = await harness.get("/version", headers={"audit-id": "mine"})
    assert reply.header("Audit-Id") == "mine"
    assert [event["auditID"] for event in sink.drain()] == ["mine", "mine"]


async def test_empty_lists_are_logged_as_sent(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    role = {"metadata": {"name": "r"}, "rules": []}
    await harness.make("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role)
    (event,) = sink.drain()
    assert (event["requestObject"]["rules"], event["responseObject"]["rules"]) == ([], None)


async def test_a_body_with_another_name_is_logged_too(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Request"}, omitStages=["RequestReceived"])
    assert (await harness.put(f"{_MAPS}/two", _MAP)).status == 400
    (event,) = sink.drain()
    assert event["requestObject"]["data"] == {"a": "b"}


async def test_objects_are_logged_by_level(harness: ServerHarness) -> None:
    for level, sent, answered in (("Metadata", 0, 0), ("Request", 1, 0), ("RequestResponse", 1, 1)):
        sink = audit(harness, {"level": level}, omitStages=["RequestReceived"])
        made = (await harness.post(_MAPS, {**_MAP, "metadata": {"name": level.lower()}})).json
        (event,) = sink.drain()
        assert event["objectRef"]["name"] == level.lower()
        assert ("requestObject" in event, "responseObject" in event) == (bool(sent), bool(answered)), level
        if sent:
            assert event["requestObject"] == {
                "kind": "ConfigMap",
                "apiVersion": "v1",
                "metadata": {"name": level.lower()},
                "data": {"a": "b"},
            }
        if answered:
            assert event["responseObject"] == made
        assert event["responseStatus"] == {"metadata": {}, "code": 201}


async def test_patches_are_logged_as_sent(harness: ServerHarness) -> None:
    await harness.make(_MAPS, _MAP)
    sink = audit(harness, {"level": "Request"}, omitStages=["RequestReceived"])
    await harness.patch(f"{_MAPS}/one", {"data": {"c": "d"}})
    await harness.patch(f"{_MAPS}/one?fieldManager=me", b"apiVersion: v1\nkind: ConfigMap\ndata: {e: f}", APPLY)
    merged, applied = sink.drain()
    assert merged["requestObject"] == {"data": {"c": "d"}}
    assert applied["requestObject"] == {"apiVersion": "v1", "kind": "ConfigMap", "data": {"e": "f"}}


async def test_deletions_have_options_and_result(harness: ServerHarness) -> None:
    uid = (await harness.make(_MAPS, _MAP))["metadata"]["uid"]
    sink = audit(harness, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    await harness.delete(
        f"{_MAPS}/one", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
    )
    (event,) = sink.drain()
    assert event["requestObject"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/__internal",
        "propagationPolicy": "Background",
    }
    details = {"name": "one", "kind": "configmaps", "uid": uid}
    assert event["responseStatus"] == {"metadata": {}, "status": "Success", "details": details, "code": 200}
    assert event["responseObject"]["kind"] == "Status"


async def test_managed_fields_can_be_omitted(harness: ServerHarness) -> None:
    rule = {"level": "RequestResponse", "omitManagedFields": True}
    sink = audit(harness, rule, omitStages=["RequestReceived"])
    await harness.make(_MAPS, _MAP)
    await harness.get(_MAPS)
    made, listed = sink.drain()
    assert "managedFields" not in made["responseObject"]["metadata"]
    assert [item["metadata"]["name"] for item in listed["responseObject"]["items"]] == ["one"]
    assert "managedFields" not in listed["responseObject"]["items"][0]["metadata"]
    assert "managedFields" in (await harness.get(f"{_MAPS}/one")).json["metadata"]


async def test_refusals_are_logged_with_reasons(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "RequestResponse"})
    forbidden = await harness.get(_MAPS, token=LIMITED_TOKEN)
    missing = await harness.get(f"{_MAPS}/none")
    _, first, _, second = sink.drain()
    assert first["annotations"] == {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    assert first["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": forbidden.message,
        "reason": "Forbidden",
        "details": {"kind": "configmaps"},
        "code": 403,
    }
    assert first["responseObject"] == forbidden.json
    assert (second["responseStatus"]["code"], second["responseStatus"]["message"]) == (404, missing.message)


async def test_a_failed_authentication_is_logged_once_without_credentials(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "RequestResponse"})
    assert (await harness.get(_MAPS, token="wrong-token-of-somebody")).status == 401
    (event,) = sink.drain()
    assert (event["stage"], event["user"], event["responseStatus"]["code"]) == ("ResponseStarted", {}, 401)
    assert "wrong-token-of-somebody" not in str(event)


async def test_a_watch_is_logged_at_start_and_end(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "RequestResponse"})
    watcher = await harness.watch(_MAPS)
    assert _stages(sink.drain()) == [("RequestReceived", 0), ("ResponseStarted", 200)]
    await watcher.close()
    await settle()
    (ended,) = sink.drain()
    assert (ended["stage"], ended["verb"], "responseObject" in ended) == ("ResponseComplete", "watch", False)


async def test_a_refused_watch_has_a_start_event_too(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Metadata"})
    await harness.get(f"{_MAPS}?watch=1", token=LIMITED_TOKEN)
    assert _stages(sink.drain()) == [("RequestReceived", 0), ("ResponseStarted", 403), ("ResponseComplete", 403)]


async def test_impersonation_is_logged_with_both_users(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Metadata", "users": ["admin"]}, omitStages=["RequestReceived"])
    await harness.get(_MAPS, headers={"impersonate-user": "jane", "impersonate-group": "readers"})
    (event,) = sink.drain()
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"] == {"username": "jane", "groups": ["readers", "system:authenticated"]}
    assert event["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}


async def test_nothing_is_logged_without_a_matching_rule(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "None", "users": ["admin"]}, {"level": "Metadata", "verbs": ["delete"]})
    await harness.get(_MAPS)
    await harness.get(_MAPS, token=LIMITED_TOKEN)
    await harness.get(_MAPS, token="wrong")
    assert not sink.drain()


async def test_a_strict_log_that_fails_stops_the_request(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "Metadata"})
    sink.succeeds = False
    reply = await harness.post(_MAPS, _MAP)
    assert (reply.status, "failed to store audit event" in reply.message) == (500, True)
    harness.replace_parts(auditor=None)
    assert (await harness.get(f"{_MAPS}/one")).status == 404


async def test_an_unexpected_exception_is_logged_without_its_text(harness: ServerHarness, monkeypatch: Any) -> None:
    async def fail(call: object) -> None:
        raise RuntimeError("the password is swordfish")

    sink = audit(harness, {"level": "Metadata"})
    monkeypatch.setattr(harness.api._routing, "answer", fail)
    with pytest.raises(RuntimeError):
        await harness.get(_MAPS)
    _, event = sink.drain()
    assert event["stage"] == "Panic"
    assert event["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "APIServer panic'd: RuntimeError",
        "reason": "InternalError",
        "code": 500,
    }


async def test_answers_in_protobuf_are_logged_as_objects(harness: ServerHarness) -> None:
    sink = audit(harness, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    accept = {"accept": "application/vnd.kubernetes.protobuf"}
    made = {"metadata": {"name": "one"}, "data": {"a": "1"}}
    await harness.post("/api/v1/namespaces/default/configmaps", made, headers=accept)
    await harness.get("/api/v1/namespaces/default/configmaps/none", headers=accept)
    first, second = sink.drain()
    assert first["responseObject"]["kind"] == "ConfigMap"
    assert first["responseObject"]["data"] == {"a": "1"}
    assert (second["responseStatus"]["code"], second["responseStatus"]["reason"]) == (404, "NotFound")
