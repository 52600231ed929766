"""The feeds `timeline` and `differences`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.client import Client, Impersonation
from setpoint.client.resources import builtin
from setpoint.meta.errors import BadRequest, Expired, Forbidden, NotFound
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.feed import PageContext
from setpoint.web.feeds import differences, timeline

CONFIGMAPS, DEPLOYMENTS = builtin("configmaps"), builtin("deployments", "apps")


def config_map(name: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def context(server: LocalServer, client: Client | None = None, cluster: str = "") -> PageContext:
    return PageContext(client or server.client, server.clock, cluster, "admin", "")


def revision(obj: Any) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def newest(client: Client) -> int:
    return int((await client.sender.json("GET", "/setpoint/v1/writes", "limit=1"))["newest"])


async def test_a_short_range_has_each_write(local_server: LocalServer) -> None:
    client = local_server.client
    begin = revision(await client.create(config_map("a")))
    await local_server.clock.advance(60)
    about = {"kind": "ConfigMap", "namespace": "default", "name": "a"}
    meta = {"name": "e", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": about})
    patched = revision(await client.patch(CONFIGMAPS, "a", {"data": {"k": "v"}}, "default"))
    await client.delete(CONFIGMAPS, "a", "default")
    end = await newest(client)
    state = FeedState()
    await timeline.run(context(local_server), {"from": begin}, state)
    assert [(each["verb"], each["revision"]) for each in state.entries] == [
        ("create", begin),
        ("patch", patched),
        ("delete", end),
    ]
    assert state.entries[1]["at"] - state.entries[0]["at"] == 60_000
    assert state.entries[0]["objects"] == [{"group": "", "resource": "configmaps", "namespace": "default", "name": "a"}]
    covered = state.items["range"]
    assert covered["from"]["revision"] == begin and covered["to"]["revision"] == end
    assert covered["counted"] is False and covered["oldest"]["revision"] <= begin and state.is_synced
    some = FeedState()
    await timeline.run(context(local_server), {"from": begin, "to": patched}, some)
    assert [each["revision"] for each in some.entries] == [begin, patched]


async def test_a_long_range_is_counted(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.apiserver.history.timeline._MAX_SCANNED", 7)
    monkeypatch.setattr("setpoint.apiserver.history.timeline._PAGE", 7)
    client = local_server.client
    made = []
    for number in range(20):
        made.append(revision(await client.create(config_map(f"c{number}"))))
        await local_server.clock.advance(30 if number == 9 else 0)
    begin, end = made[0], made[-1]
    state = FeedState()
    await timeline.run(context(local_server), {"from": begin, "buckets": 4}, state)
    assert state.items["range"]["counted"] and not state.entries and state.is_synced
    buckets = [state.items[str(number)] for number in range(4)]
    width = -(-(end + 1 - begin) // 4)
    expected = [[each for each in made if (each - begin) // width == number] for number in range(4)]
    assert [sum(each["writes"].values()) for each in buckets] == [*map(len, expected)]
    assert [(each["first"], each["last"]) for each in buckets] == [(each[0], each[-1]) for each in expected]
    assert [each["after"] for each in state.items["gaps"]["gaps"]] == [made[9]]


async def test_what_cannot_be_shown(local_server: LocalServer) -> None:
    state = FeedState()
    for args in ({"from": -1}, {"from": "x"}, {"buckets": 9_999}, {"from": True}, {"from": 10**9}):
        with pytest.raises(BadRequest):
            await timeline.run(context(local_server), args, state)
    for cluster in ("/at/7", "/forks/x/at/7"):
        with pytest.raises(BadRequest):
            await timeline.run(context(local_server, cluster=cluster), {}, state)
        with pytest.raises(BadRequest):
            await differences.run(context(local_server, cluster=cluster), {"from": 5}, state)
    for args in ({}, {"from": 9, "to": 5}, {"from": "x"}, {"from": 5, "to": -2}):
        with pytest.raises(BadRequest):
            await differences.run(context(local_server), args, state)
    limited = local_server.client.named("page", Impersonation("bob"))
    for run in (timeline.run, differences.run):
        with pytest.raises(Forbidden):
            await run(context(local_server, limited), {"from": 5}, state)

    class Elsewhere:
        """A Kubernetes API server has no such path."""

        async def json(self, method: str, path: str, query: str = "", body: Any = None, **more: Any) -> Any:
            raise NotFound("the server could not find the requested resource")

    client = local_server.client.named("page")
    client.sender = Elsewhere()  # type: ignore[assignment]
    for run in (timeline.run, differences.run):
        with pytest.raises(NotFound, match="does not record who writes what"):
            await run(context(local_server, client), {"from": 5}, state)


async def test_a_moment_that_is_no_longer_kept(local_server: LocalServer) -> None:
    client = local_server.client
    await client.create(config_map("a"))
    await local_server.api.resources.store.compact(await newest(client) - 1)
    for run in (timeline.run, differences.run):
        with pytest.raises(Expired, match="in the history"):
            await run(context(local_server), {"from": 2}, FeedState())


async def test_differences_between_two_moments(local_server: LocalServer) -> None:
    client = local_server.client
    await client.create(config_map("kept", k="1"))
    await client.create(config_map("gone"))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    await client.create({**secret, "stringData": {"password": "hunter2"}})
    begin = await newest(client)
    await client.patch(CONFIGMAPS, "kept", {"data": {"k": "2"}}, "default")
    await client.create(config_map("passing"))
    await client.delete(CONFIGMAPS, "passing", "default")
    await client.delete(CONFIGMAPS, "gone", "default")
    await client.create(config_map("new"))
    await client.patch(builtin("secrets"), "s", {"stringData": {"password": "other"}}, "default")
    end = await newest(client)
    await client.create(config_map("later"))
    state = FeedState()
    await differences.run(context(local_server), {"from": begin, "to": end}, state)
    found = {item["ref"]["name"]: (item["sign"], item["text"]) for key, item in state.items.items() if key != "total"}
    assert found == {
        "kept": ("~", "data.k 1 -> 2"),
        "gone": ("-", ""),
        "new": ("+", ""),
        "s": ("~", "data.password"),
    }
    assert state.items["total"] == {"created": 1, "changed": 2, "deleted": 1, "more": 0}
    assert state.items["/configmaps/default/new"]["ref"]["kind"] == "ConfigMap" and state.is_synced
    until_now = FeedState()
    await differences.run(context(local_server), {"from": end}, until_now)
    assert [item["ref"]["name"] for key, item in until_now.items.items() if key != "total"] == ["later"]


async def test_differences_are_bounded(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MAX_OBJECTS", 3)
    client = local_server.client
    begin = await newest(client)
    for number in range(8):
        await client.create(config_map(f"c{number}"))
    state = FeedState()
    await differences.run(context(local_server), {"from": begin}, state)
    assert len(state.items) == 4 and state.items["total"]["more"] == 5


@virtual(nodes=2)
async def test_lanes_of_a_rollout(cluster: VirtualCluster) -> None:
    ann = cluster.client.named("kubectl", Impersonation("ann", groups=("system:masters",)))
    begin = await newest(cluster.client)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    meta = {"name": "web", "namespace": "default"}
    await ann.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
    await cluster.settle()
    state = FeedState()
    await timeline.run(PageContext(ann, cluster.clock, "", "ann", ""), {"from": begin + 1}, state)
    lanes = Counter(each["lane"] for each in state.entries)
    assert [count for lane, count in lanes.items() if lane.startswith("ann (kubectl)")] == [1]
    assert lanes["kubelets"] >= 2 and lanes["kube-scheduler"] >= 2
    assert lanes["replicaset-controller"] >= 2 and lanes["deployment-controller"] >= 1
    created = [each for each in state.entries if each["lane"] == "replicaset-controller" and each["verb"] == "create"]
    assert len({each["reconcile"] for each in created}) == 1, "one reconcile made both Pods"
