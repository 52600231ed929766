"""`/setpoint/v1/history` and `/setpoint/v1/writes`."""

from __future__ import annotations

from typing import Any

from server_harness import LIMITED_TOKEN, ServerHarness

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
HISTORY, WRITES = "/setpoint/v1/history", "/setpoint/v1/writes"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def allow(harness: ServerHarness, name: str, *rules: dict[str, Any]) -> None:
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}
    await harness.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    )


async def test_changes_of_an_object_page_by_page(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    for number in range(7):
        await harness.patch(f"{CONFIGMAPS}/a", {"data": {"n": str(number)}})
    path = f"{HISTORY}?resource=configmaps&namespace=default&name=a&limit=3"
    found: list[dict[str, Any]] = []
    following = 0
    while True:
        page = (await harness.get(f"{path}&before={following}" if following else path)).json
        found += page["changes"]
        following = page["next"]
        if not following:
            break
        assert len(page["changes"]) == 3
    assert [each["text"] for each in found] == [
        *(f"data.n {number - 1} -> {number}" for number in range(6, 0, -1)),
        "data.n set to 0",
        "created",
    ]
    assert found[0]["cause"]["verb"] == "patch" and found[0]["cause"]["user"] == "admin"
    assert found[0]["revision"] == harness.store.revision
    # The version that was there when the history begins is known, but not who made it.
    await harness.store.compact(found[2]["revision"] - 1)
    page = (await harness.get(path)).json
    assert [each["kind"] for each in page["changes"]] == ["updated", "updated", "updated"] and page["next"]
    last = (await harness.get(f"{path}&before={page['next']}")).json["changes"]
    assert [(each["kind"], each["text"], "cause" in each) for each in last] == [
        ("known", "as it was when the history began", False)
    ]
    for query in (
        "resource=configmaps",
        "name=a",
        "resource=configmaps&name=a&deleted=true",
        "resource=configmaps&name=a/b",
        "resource=configmaps&name=a&limit=x",
    ):
        assert (await harness.get(f"{HISTORY}?{query}")).status == 400, query
    assert (await harness.get(f"{HISTORY}?resource=configmaps&namespace=default&name=no")).status == 404
    assert (await harness.post(f"{HISTORY}?resource=configmaps&name=a", {})).status == 405


async def test_values_of_secrets_are_not_shown(harness: ServerHarness) -> None:
    secrets = CONFIGMAPS.replace("configmaps", "secrets")
    await harness.make(secrets, {"metadata": {"name": "a"}, "data": {"password": "aHVudGVyMg=="}})
    await harness.patch(f"{secrets}/a", {"data": {"password": "b3RoZXI="}})
    answer = await harness.get(f"{HISTORY}?resource=secrets&namespace=default&name=a")
    assert [each["text"] for each in answer.json["changes"]] == [
        "data.password <hidden-2> -> <hidden-1>",
        "created",
    ]
    assert b"aHVudGVyMg" not in answer.body and b"b3RoZXI" not in answer.body


async def test_all_writes_page_by_page(harness: ServerHarness) -> None:
    begin = harness.store.revision
    made = []
    for number in range(7):
        obj = await harness.make(CONFIGMAPS, {"metadata": {"name": f"c{number}"}})
        made.append(int(obj["metadata"]["resourceVersion"]))
        await harness.clock.advance(10)
    found: list[dict[str, Any]] = []
    after = begin
    while after:
        page = (await harness.get(f"{WRITES}?after={after}&limit=3")).json
        found += page["writes"]
        after = page["next"]
    assert [each["objects"][0]["name"] for each in found] == [f"c{number}" for number in range(7)]
    assert page["newest"] == harness.store.revision
    some = (await harness.get(f"{WRITES}?from={made[1]}&to={made[2]}")).json
    assert [each["revision"] for each in some["writes"]] == made[1:3] and not some["next"]
    assert (await harness.get(f"{WRITES}?from=-35s")).json["writes"][0]["objects"][0]["name"] == "c3"
    assert (await harness.get(f"{WRITES}?user=nobody")).json["writes"] == []
    assert len((await harness.get(f"{WRITES}?user=admin&after={begin}")).json["writes"]) == 7
    await harness.store.compact(made[2])
    assert (await harness.get(f"{WRITES}?after={begin}")).status == 410
    assert (await harness.get(WRITES)).json["writes"][0]["revision"] == made[3]


async def test_only_what_may_be_read_now_is_shown(harness: ServerHarness) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await harness.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    await harness.delete("/api/v1/namespaces/default/secrets/s")

    async def limited(path: str) -> Any:
        return await harness.get(path, token=LIMITED_TOKEN)

    assert (await limited(WRITES)).status == 403
    await allow(
        harness,
        "reader",
        {"verbs": ["get"], "nonResourceURLs": ["/setpoint/v1/*"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]},
    )
    shown = {each["resource"] for write in (await limited(WRITES)).json["writes"] for each in write["objects"]}
    assert shown == {"configmaps"}
    assert (await limited(f"{HISTORY}?resource=configmaps&namespace=default&name=a")).status == 200
    assert (await limited(f"{HISTORY}?resource=secrets&namespace=default&name=s")).status == 403
    assert (await limited(f"{HISTORY}?resource=secrets&namespace=default&deleted=true")).status == 403
    assert (await limited(f"{HISTORY}?resource=configmaps&namespace=default&deleted=true")).json == {"deleted": []}
    gone = (await harness.get(f"{HISTORY}?resource=secrets&deleted=true")).json["deleted"]
    assert [(each["namespace"], each["name"], each["cause"]["verb"]) for each in gone] == [("default", "s", "delete")]
    await harness.delete(f"{RBAC}/clusterrolebindings/reader")
    assert (await limited(f"{HISTORY}?resource=configmaps&namespace=default&name=a")).status == 403
