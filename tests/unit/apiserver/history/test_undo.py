"""`/setpoint/v1/undo`: what a plan contains, and the rights of its user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from server_harness import JSON_PATCH, LIMITED_TOKEN, ServerHarness

from setpoint.kinds.bootstrap.cluster_roles import CLUSTER_ROLES, HISTORY
from setpoint.meta.cause import CAUSE_HEADER
from setpoint.store.archive import FileArchive, Retention
from setpoint.store.memory import MemoryStore
from setpoint.testing import VirtualClock

CONFIGMAPS, SECRETS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/secrets"
UNDO = "/setpoint/v1/undo"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def bind(harness: ServerHarness, role: str, *rules: dict[str, Any]) -> None:
    """Create a ClusterRole and bind it to the limited user."""
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": role}, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}
    await harness.make(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]},
    )


async def test_undo_can_do_nothing_that_its_user_could_not(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    await harness.make(SECRETS, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    begin = harness.store.revision
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}})
    changed = harness.store.revision
    await harness.delete(f"{SECRETS}/s")
    deleted = harness.store.revision

    async def limited(body: dict[str, Any]) -> Any:
        return await harness.post(UNDO, body, token=LIMITED_TOKEN)

    assert (await limited({"revision": changed})).status == 403
    reader = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}
    await bind(harness, HISTORY, *CLUSTER_ROLES[HISTORY])
    refused = await limited({"revision": changed})
    assert refused.status == 403 and 'cannot get resource "configmaps"' in refused.message
    await bind(harness, "reader", reader)
    prepared = harness.store.revision
    plan = (await limited({"revision": changed})).json
    assert plan["reason"] == f"undo of {changed}" and plan["cause"]["user"] == "admin"
    (step,) = plan["steps"]
    # The plan may be made by those who can read; the requests need the right to write.
    request = step["request"]
    path = f"{request['path']}?{request['query']}"
    refused = await harness.patch(path, request["body"], JSON_PATCH, token=LIMITED_TOKEN)
    assert refused.status == 403 and (await harness.get(f"{CONFIGMAPS}/a")).json["data"] == {"k": "2"}
    # A plan that was edited by hand is a list of requests like others, each with the rights of its user.
    bound = {"metadata": {"name": "mine"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}
    for method, edited, body in (
        ("PATCH", f"{SECRETS}/s", [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]),
        ("PATCH", f"{CONFIGMAPS}/a?force=true", [{"op": "remove", "path": "/data"}]),
        ("POST", SECRETS, {"metadata": {"name": "new"}}),
        ("POST", f"{RBAC}/clusterrolebindings", bound),
        ("DELETE", f"{CONFIGMAPS}/a", None),
        ("PUT", f"{CONFIGMAPS}/a", {"metadata": {"name": "a"}}),
    ):
        how: dict[str, Any] = {"content_type": JSON_PATCH} if method == "PATCH" else {}
        reason = {CAUSE_HEADER: "why=undo of 1"}
        reply = await harness.request(method, edited, body, token=LIMITED_TOKEN, headers=reason, **how)
        assert reply.status == 403, (method, edited)
    # Secrets are not shown, not even as parts of something larger.
    assert (await limited({"revision": deleted})).status == 403
    named = {"resource": "secrets", "namespace": "default", "name": "s"}
    assert (await limited({"at": str(begin), "objects": [named]})).status == 403
    plan = (await limited({"at": str(begin), "namespace": "default"})).json
    assert [each["object"]["name"] for each in plan["steps"]] == ["a"]
    assert {"object": "one object", "text": "you may not read it"} in plan["notDone"]
    full = (await harness.post(UNDO, {"at": str(begin), "namespace": "default"})).json
    assert sorted(each["object"]["name"] for each in full["steps"]) == ["a", "s"]
    # What a plan tells of a Secret has no values; only the request that creates it anew has them.
    told = [{key: value for key, value in each.items() if key != "request"} for each in full["steps"]]
    assert "dg==" not in str([told, full["notDone"]]) and "dg==" in str(full["steps"])
    # The request alone changes nothing.
    assert harness.store.revision == prepared

    # The patch tests what it replaces: it fails if another client was faster.
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"k": "3"}})
    stale = await harness.patch(path, request["body"], JSON_PATCH)
    assert stale.status == 422 and (await harness.get(f"{CONFIGMAPS}/a")).json["data"] == {"k": "3"}


async def test_bad_requests_and_what_is_no_longer_known(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    made = harness.store.revision
    for body in (
        {},
        {"revision": "1"},
        {"revision": 0},
        {"revision": True},
        {"revision": 10**6},
        {"revision": made, "at": "-5m"},
        {"revision": made, "cascade": "No"},
        {"revision": made, "unknown": 1},
        {"at": str(made)},
        {"at": str(made), "all": True, "namespace": "default"},
        {"at": str(made), "all": True, "selector": "a==="},
        {"at": str(made), "objects": [1]},
        {"at": str(made), "objects": [{"resource": "configmaps", "name": "a/b"}]},
        {"at": str(made), "objects": [{"resource": "configmaps"}] * 1001},
        {"at": "no such moment"},
    ):
        assert (await harness.post(UNDO, body)).status == 400, body
    missing = {"resource": "configmaps", "namespace": "default", "name": "no"}
    assert (await harness.post(UNDO, {"at": str(made), "objects": [missing]})).status == 404
    assert (await harness.get(UNDO)).status == 405
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}})
    changed = harness.store.revision
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"k": "3"}})
    await harness.store.compact(changed)
    assert (await harness.post(UNDO, {"revision": made})).status == 410
    assert (await harness.post(UNDO, {"at": str(made), "all": True})).status == 410
    plan = (await harness.post(UNDO, {"revision": harness.store.revision})).json
    assert [each["text"] for each in plan["steps"]] == ["data.k 3 -> 2"]


async def test_undo_of_what_only_the_archive_has(tmp_path: Path) -> None:
    """A change and a deletion that the store has compacted, after the server has started again."""
    store = MemoryStore()
    archive = FileArchive(tmp_path / "history.db", Retention(), VirtualClock(), threads=False)
    await archive.follow(store)
    harness = await ServerHarness.open(store)
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"k": "1", "other": "x"}})
    await harness.make(CONFIGMAPS, {"metadata": {"name": "gone"}, "data": {"k": "1"}})
    begin = store.revision
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"k": "2"}})
    changed = store.revision
    await harness.delete(f"{CONFIGMAPS}/gone")
    deleted = store.revision
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"other": "y"}})
    await store.compact(store.revision)
    restarted = store.fork()
    await harness.close()
    await archive.close()

    store = restarted
    archive = FileArchive(tmp_path / "history.db", Retention(), VirtualClock(), threads=False)
    await archive.follow(store)
    harness = await ServerHarness.open(store)
    assert store.compacted > deleted
    plan = (await harness.post(UNDO, {"revision": changed})).json
    assert [each["text"] for each in plan["steps"]] == ["data.k 2 -> 1"] and plan["cause"]["user"] == "admin"
    request = plan["steps"][0]["request"]
    done = await harness.patch(f"{request['path']}?{request['query']}", request["body"], JSON_PATCH)
    assert (done.status, done.json["data"]) == (200, {"k": "1", "other": "y"})
    plan = (await harness.post(UNDO, {"revision": deleted})).json
    body = plan["steps"][0]["request"]["body"]
    assert (body["metadata"]["name"], body["data"]) == ("gone", {"k": "1"}) and "uid" not in body["metadata"]
    plan = (await harness.post(UNDO, {"at": str(begin), "namespace": "default"})).json
    assert sorted(each["text"] for each in plan["steps"]) == ["created anew, with a new uid", "data.other y -> x"]
    await harness.close()
    await archive.close()
