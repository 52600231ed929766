"""`/setpoint/v1/writes`: what changed, and the stream of writes."""

from __future__ import annotations

import asyncio

import pytest
from server_harness import LIMITED_TOKEN, ServerHarness, settle

from setpoint.apiserver.history.reader import HistoryReader, Write
from setpoint.store.interface import Put

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
NODES = "/api/v1/nodes"
WRITES = "/setpoint/v1/writes"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CAUSE = {"setpoint-cause": "r=replicaset-controller/b3f1.6;k=default/web;t=7;why=2 Pods%2C 3 wanted"}


async def test_changes_of_each_object_by_part(harness: ServerHarness) -> None:
    begin = harness.store.revision
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"n": "1"}})
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"n": "2"}})
    await harness.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"x": "y"}}}, headers=CAUSE)
    await harness.patch(f"{CONFIGMAPS}/a", {"metadata": {"finalizers": ["example.com/f"]}})
    await harness.delete(f"{CONFIGMAPS}/a")
    await harness.patch(f"{CONFIGMAPS}/a", {"metadata": {"finalizers": None}})
    found = (await harness.get(f"{WRITES}?after={begin}&changes=true")).json["writes"]
    assert [(each["objects"][0]["part"], each["objects"][0]["action"]) for each in found] == [
        ("created", "created"),
        ("spec", "changed"),
        ("metadata", "changed"),
        ("metadata", "changed"),
        ("deleted", "deleted"),
        ("deleted", "completed the deletion of"),
    ]
    changed = found[1]["objects"][0]
    assert changed["fields"] == [{"path": ["data", "n"], "old": "1", "new": "2"}]
    assert changed["changes"] == ["data.n 1 -> 2"]
    assert (changed["kind"], changed["version"], changed["name"]) == ("ConfigMap", "v1", "a") and changed["uid"]
    assert (found[1]["actor"], found[1]["person"]) == ("admin (tests)", True)
    by_controller = found[2]
    assert (by_controller["actor"], by_controller["person"]) == ("replicaset-controller (admin)", False)
    assert by_controller["cause"]["triggers"] == [7] and by_controller["cause"]["reason"] == "2 Pods, 3 wanted"
    assert "fields" not in (await harness.get(f"{WRITES}?after={begin}")).json["writes"][0]["objects"][0]


async def test_values_of_secrets_are_masked_and_large_ones_cut(harness: ServerHarness) -> None:
    begin = harness.store.revision
    await harness.make(SECRETS, {"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}})
    await harness.patch(f"{SECRETS}/s", {"data": {"password": "b3RoZXI="}})
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}, "data": {"n": "x" * 9_000}})
    await harness.patch(f"{CONFIGMAPS}/a", {"data": {"n": "y" * 9_000}})
    answer = await harness.get(f"{WRITES}?after={begin}&changes=true")
    assert b"aHVudGVyMg" not in answer.body and b"b3RoZXI" not in answer.body
    writes = answer.json["writes"]
    (field,) = writes[1]["objects"][0]["fields"]
    assert field["path"] == ["data", "password"] and field["old"] != field["new"] and "hidden" in field["new"]
    assert len(writes[3]["objects"][0]["fields"][0]["new"]) < 100


async def test_a_stream_sends_what_is_written(harness: ServerHarness) -> None:
    begin = harness.store.revision
    await harness.make(CONFIGMAPS, {"metadata": {"name": "before"}})
    watcher = await harness.watch(f"{WRITES}?after={begin}")
    live = await harness.watch(WRITES)
    await harness.make(CONFIGMAPS, {"metadata": {"name": "after"}})
    await settle()
    assert [each["type"] for each in watcher.events] == ["start", "write", "write"]
    assert watcher.events[0]["revision"] == begin
    names = [each["write"]["objects"][0]["name"] for each in watcher.events[1:]]
    assert names == ["before", "after"] and watcher.events[2]["write"]["objects"][0]["part"] == "created"
    assert [each["write"]["objects"][0]["name"] for each in live.events[1:]] == ["after"]
    await live.close()
    await watcher.close()
    await harness.make(CONFIGMAPS, {"metadata": {"name": "unread"}})
    await settle()
    assert len(watcher.events) == 3  # and writing to an ended stream would fail


async def test_heartbeats_and_events_are_counted(harness: ServerHarness) -> None:
    await harness.make(NODES, {"metadata": {"name": "n1"}})
    await harness.make(LEASES, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "x"}})
    condition = {"type": "Ready", "status": "True", "reason": "r", "message": "m"}
    times = [f"2026-01-01T00:00:{second:02d}Z" for second in (1, 2)]
    await harness.patch(
        f"{NODES}/n1/status", {"status": {"conditions": [{**condition, "lastHeartbeatTime": times[0]}]}}
    )
    watcher = await harness.watch(WRITES)
    await harness.patch(f"{LEASES}/l", {"spec": {"holderIdentity": "y"}})
    await harness.patch(
        f"{NODES}/n1/status", {"status": {"conditions": [{**condition, "lastHeartbeatTime": times[1]}]}}
    )
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}}
    await harness.make("/api/v1/namespaces/default/events", event)
    await settle()
    await harness.clock.advance(2)
    counted = [each for each in watcher.events if each["type"] == "folded"]
    assert sum(each["heartbeats"] for each in counted) == 2 and sum(each["events"] for each in counted) == 1
    assert counted[-1]["revision"] == harness.store.revision
    assert not [each for each in watcher.events if each["type"] == "write"]
    await harness.patch(f"{NODES}/n1", {"spec": {"unschedulable": True}})
    await settle()
    assert watcher.events[-1]["write"]["objects"][0]["changes"][0] == "spec.unschedulable set to true"
    await watcher.close()


async def test_a_burst_is_counted_and_people_are_not_lost_in_it(harness: ServerHarness) -> None:
    watcher = await harness.watch(WRITES)
    for number in range(120):
        await harness.post(CONFIGMAPS, {"metadata": {"name": f"c{number}"}}, headers=CAUSE)
    await harness.make(CONFIGMAPS, {"metadata": {"name": "mine"}})
    await settle(500)
    await harness.clock.advance(1)
    described = [each["write"] for each in watcher.events if each["type"] == "write"]
    counted = [each for each in watcher.events if each["type"] == "counts"]
    assert len(described) == 51 and described[-1]["objects"][0]["name"] == "mine"
    assert sum(each["writes"] for each in counted) == 70
    assert sum(sum(each["actors"].values()) for each in counted) == 70
    await watcher.close()


async def test_a_slow_reader_costs_no_memory(harness: ServerHarness) -> None:
    slow = asyncio.Event()
    watcher = await harness.watch(WRITES, slow=slow)
    for number in range(1_200):
        await harness.store.txn([_put(f"core/configmaps/default/c{number}")])
        if not number % 100:
            await settle(2)
    await harness.clock.advance(5)
    assert len(watcher.raw) < 100_000
    slow.set()
    await settle(5_000)
    await harness.clock.advance(5)
    sent = [each for each in watcher.events if each["type"] == "write"]
    counted = sum(each["writes"] for each in watcher.events if each["type"] == "counts")
    assert len(sent) + counted == 1_200 and counted > 1_000
    await watcher.close()


def _put(key: str) -> Put:
    return Put(key, b'{"metadata":{"name":"x"}}')


async def test_rights_and_limits_of_a_stream(harness: ServerHarness) -> None:
    assert (await harness.get(f"{WRITES}?watch=true", token=LIMITED_TOKEN)).status == 403
    rules = [
        {"verbs": ["get"], "nonResourceURLs": ["/setpoint/v1/*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]},
    ]
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "limited"}
    await harness.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "r"}, "roleRef": role, "subjects": [subject]}
    )
    watcher = await harness.watch(WRITES, token=LIMITED_TOKEN)
    await harness.make(SECRETS, {"metadata": {"name": "s"}})
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    await settle()
    await harness.delete(f"{RBAC}/clusterrolebindings/r")
    await harness.make(CONFIGMAPS, {"metadata": {"name": "b"}})
    await settle()
    shown = [each["write"]["objects"][0] for each in watcher.events if each["type"] == "write"]
    assert [(each["resource"], each["name"]) for each in shown] == [("configmaps", "a")]
    # The stream ends by itself, so that its client is authorized again.
    await harness.clock.advance(1801)
    await settle()
    assert watcher.ended
    await harness.store.compact(harness.store.revision)
    await harness.make(CONFIGMAPS, {"metadata": {"name": "c"}})
    assert (await harness.get(f"{WRITES}?watch=true&after=1")).status == 410
    assert (await harness.get(f"{WRITES}?watch=true&after=x")).status == 400


async def test_the_newest_revision_is_the_last_that_was_looked_at(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that continues there misses nothing that was written while its page was being read."""
    real, meanwhile = HistoryReader.writes, iter(("b", "c"))

    async def writes(reader: HistoryReader, after: int, limit: int) -> list[Write]:
        found = await real(reader, after, limit)
        if (name := next(meanwhile, "")) != "":
            await harness.make(CONFIGMAPS, {"metadata": {"name": name}})
        return found

    after = harness.store.revision
    await harness.make(CONFIGMAPS, {"metadata": {"name": "a"}})
    monkeypatch.setattr(HistoryReader, "writes", writes)
    seen = []
    for _ in range(3):
        answer = (await harness.get(f"{WRITES}?after={after}&changes=true")).json
        seen += [each["name"] for write in answer["writes"] for each in write["objects"]]
        after = answer["next"] or answer["newest"]
    assert seen == ["a", "b", "c"]
