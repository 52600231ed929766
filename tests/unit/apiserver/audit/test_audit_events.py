"""What the audit log tells of a request, through the front door."""

from __future__ import annotations

from typing import Any

import pytest
from audited_door import audit
from front_door import APPLY, LIMITED_TOKEN, FrontDoor, settle

_MAP = {"metadata": {"name": "one"}, "data": {"a": "b"}}
_MAPS = "/api/v1/namespaces/default/configmaps"


def _stages(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(event["stage"], event.get("responseStatus", {}).get("code", 0)) for event in events]


async def test_a_read_is_told_when_it_comes_and_when_it_is_answered(door: FrontDoor) -> None:
    kept = audit(door, {"level": "Metadata"})
    reply = await door.get("/api/v1/namespaces/default?pretty=false", headers={"x-forwarded-for": "192.0.2.7, nobody"})
    came, went = kept.taken()
    assert came == {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": reply.header("Audit-Id"),
        "stage": "RequestReceived", "requestURI": "/api/v1/namespaces/default?pretty=false", "verb": "get",
        "user": {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["192.0.2.7", "127.0.0.1"], "userAgent": "tests/1.0",
        "objectRef": {"resource": "namespaces", "namespace": "default", "name": "default", "apiVersion": "v1"},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z", "stageTimestamp": "2026-01-01T00:00:00.000000Z",
    }  # fmt: skip
    assert list(came)[:5] == ["kind", "apiVersion", "level", "auditID", "stage"]
    assert went == came | {
        "stage": "ResponseComplete",
        "responseStatus": {"metadata": {}, "code": 200},
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    }


async def test_the_clients_own_audit_id_is_used(door: FrontDoor) -> None:
    kept = audit(door, {"level": "Metadata"})
    reply = await door.get("/version", headers={"audit-id": "mine"})
    assert reply.header("Audit-Id") == "mine"
    assert [event["auditID"] for event in kept.taken()] == ["mine", "mine"]


async def test_empty_lists_are_told_as_they_were_sent(door: FrontDoor) -> None:
    kept = audit(door, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    role = {"metadata": {"name": "r"}, "rules": []}
    await door.make("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", role)
    (event,) = kept.taken()
    assert (event["requestObject"]["rules"], event["responseObject"]["rules"]) == ([], None)


async def test_what_is_sent_to_the_wrong_name_is_told_too(door: FrontDoor) -> None:
    kept = audit(door, {"level": "Request"}, omitStages=["RequestReceived"])
    assert (await door.put(f"{_MAPS}/two", _MAP)).status == 400
    (event,) = kept.taken()
    assert event["requestObject"]["data"] == {"a": "b"}


async def test_objects_are_told_at_the_levels_that_ask_for_them(door: FrontDoor) -> None:
    for level, sent, answered in (("Metadata", 0, 0), ("Request", 1, 0), ("RequestResponse", 1, 1)):
        kept = audit(door, {"level": level}, omitStages=["RequestReceived"])
        made = (await door.post(_MAPS, {**_MAP, "metadata": {"name": level.lower()}})).json
        (event,) = kept.taken()
        assert event["objectRef"]["name"] == level.lower()
        assert ("requestObject" in event, "responseObject" in event) == (bool(sent), bool(answered)), level
        if sent:
            assert event["requestObject"] == {
                "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": level.lower()}, "data": {"a": "b"},
            }  # fmt: skip
        if answered:
            assert event["responseObject"] == made
        assert event["responseStatus"] == {"metadata": {}, "code": 201}


async def test_patches_are_told_as_they_came(door: FrontDoor) -> None:
    await door.make(_MAPS, _MAP)
    kept = audit(door, {"level": "Request"}, omitStages=["RequestReceived"])
    await door.patch(f"{_MAPS}/one", {"data": {"c": "d"}})
    await door.patch(f"{_MAPS}/one?fieldManager=me", b"apiVersion: v1\nkind: ConfigMap\ndata: {e: f}", APPLY)
    merged, applied = kept.taken()
    assert merged["requestObject"] == {"data": {"c": "d"}}
    assert applied["requestObject"] == {"apiVersion": "v1", "kind": "ConfigMap", "data": {"e": "f"}}


async def test_deletions_show_their_options_and_what_came_of_them(door: FrontDoor) -> None:
    uid = (await door.make(_MAPS, _MAP))["metadata"]["uid"]
    kept = audit(door, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    await door.delete(f"{_MAPS}/one", {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
    (event,) = kept.taken()
    assert event["requestObject"] == {
        "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "propagationPolicy": "Background",
    }  # fmt: skip
    details = {"name": "one", "kind": "configmaps", "uid": uid}
    assert event["responseStatus"] == {"metadata": {}, "status": "Success", "details": details, "code": 200}
    assert event["responseObject"]["kind"] == "Status"


async def test_managed_fields_are_left_out_on_request(door: FrontDoor) -> None:
    rule = {"level": "RequestResponse", "omitManagedFields": True}
    kept = audit(door, rule, omitStages=["RequestReceived"])
    await door.make(_MAPS, _MAP)
    await door.get(_MAPS)
    made, listed = kept.taken()
    assert "managedFields" not in made["responseObject"]["metadata"]
    assert [item["metadata"]["name"] for item in listed["responseObject"]["items"]] == ["one"]
    assert "managedFields" not in listed["responseObject"]["items"][0]["metadata"]
    assert "managedFields" in (await door.get(f"{_MAPS}/one")).json["metadata"]


async def test_refusals_are_told_with_their_reasons(door: FrontDoor) -> None:
    kept = audit(door, {"level": "RequestResponse"})
    forbidden = await door.get(_MAPS, token=LIMITED_TOKEN)
    missing = await door.get(f"{_MAPS}/none")
    _, first, _, second = kept.taken()
    assert first["annotations"] == {"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""}
    assert first["responseStatus"] == {
        "metadata": {}, "status": "Failure", "message": forbidden.message, "reason": "Forbidden",
        "details": {"kind": "configmaps"}, "code": 403,
    }  # fmt: skip
    assert first["responseObject"] == forbidden.json
    assert (second["responseStatus"]["code"], second["responseStatus"]["message"]) == (404, missing.message)


async def test_a_failed_authentication_is_told_once_without_the_credentials(door: FrontDoor) -> None:
    kept = audit(door, {"level": "RequestResponse"})
    assert (await door.get(_MAPS, token="wrong-token-of-somebody")).status == 401
    (event,) = kept.taken()
    assert (event["stage"], event["user"], event["responseStatus"]["code"]) == ("ResponseStarted", {}, 401)
    assert "wrong-token-of-somebody" not in str(event)


async def test_a_watch_is_told_when_it_begins_and_when_it_ends(door: FrontDoor) -> None:
    kept = audit(door, {"level": "RequestResponse"})
    watcher = await door.watch(_MAPS)
    assert _stages(kept.taken()) == [("RequestReceived", 0), ("ResponseStarted", 200)]
    await watcher.close()
    await settle()
    (ended,) = kept.taken()
    assert (ended["stage"], ended["verb"], "responseObject" in ended) == ("ResponseComplete", "watch", False)


async def test_a_watch_that_is_refused_has_begun_too(door: FrontDoor) -> None:
    kept = audit(door, {"level": "Metadata"})
    await door.get(f"{_MAPS}?watch=1", token=LIMITED_TOKEN)
    assert _stages(kept.taken()) == [("RequestReceived", 0), ("ResponseStarted", 403), ("ResponseComplete", 403)]


async def test_whoever_acts_as_another_is_told_with_both_names(door: FrontDoor) -> None:
    kept = audit(door, {"level": "Metadata", "users": ["admin"]}, omitStages=["RequestReceived"])
    await door.get(_MAPS, headers={"impersonate-user": "jane", "impersonate-group": "readers"})
    (event,) = kept.taken()
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"] == {"username": "jane", "groups": ["readers", "system:authenticated"]}
    assert event["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}


async def test_nothing_is_told_where_no_rule_asks_for_it(door: FrontDoor) -> None:
    kept = audit(door, {"level": "None", "users": ["admin"]}, {"level": "Metadata", "verbs": ["delete"]})
    await door.get(_MAPS)
    await door.get(_MAPS, token=LIMITED_TOKEN)
    await door.get(_MAPS, token="wrong")
    assert not kept.taken()


async def test_a_strict_log_that_fails_stops_the_request(door: FrontDoor) -> None:
    kept = audit(door, {"level": "Metadata"})
    kept.works = False
    reply = await door.post(_MAPS, _MAP)
    assert (reply.status, "failed to store audit event" in reply.message) == (500, True)
    door.api.auditor = None
    assert (await door.get(f"{_MAPS}/one")).status == 404


async def test_a_failure_nobody_thought_of_is_told_without_its_text(door: FrontDoor, monkeypatch: Any) -> None:
    async def fail(call: object) -> None:
        raise RuntimeError("the password is swordfish")

    kept = audit(door, {"level": "Metadata"})
    monkeypatch.setattr(door.api._routing, "answer", fail)
    with pytest.raises(RuntimeError):
        await door.get(_MAPS)
    _, event = kept.taken()
    assert event["stage"] == "Panic"
    assert event["responseStatus"] == {
        "metadata": {}, "status": "Failure", "message": "APIServer panic'd: RuntimeError", "reason": "InternalError",
        "code": 500,
    }  # fmt: skip


async def test_answers_in_protobuf_are_logged_as_objects(door: FrontDoor) -> None:
    kept = audit(door, {"level": "RequestResponse"}, omitStages=["RequestReceived"])
    accept = {"accept": "application/vnd.kubernetes.protobuf"}
    made = {"metadata": {"name": "one"}, "data": {"a": "1"}}
    await door.post("/api/v1/namespaces/default/configmaps", made, headers=accept)
    await door.get("/api/v1/namespaces/default/configmaps/none", headers=accept)
    first, second = kept.taken()
    assert first["responseObject"]["kind"] == "ConfigMap"
    assert first["responseObject"]["data"] == {"a": "1"}
    assert (second["responseStatus"]["code"], second["responseStatus"]["reason"]) == (404, "NotFound")
