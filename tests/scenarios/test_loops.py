"""The control loops can be watched, paused and stepped through the API, and run again by themselves."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from why_scenarios import World, plain, workload

from setpoint.client import Client
from setpoint.cluster.components import MASTERS
from setpoint.meta.errors import ApiError, BadRequest, Conflict, Forbidden, NotFound
from setpoint.reconcile.gate import HOLD_SECONDS
from setpoint.testing import VirtualCluster, virtual

PATH = "/setpoint/v1/loops"
POD, REPLICA_SET = ("v1", "Pod"), ("apps/v1", "ReplicaSet")
REPLICASETS = "replicaset-controller"


async def board(cluster: VirtualCluster, query: str = "") -> dict[str, Any]:
    return await cluster.client.sender.json("GET", PATH, query)


async def loop(cluster: VirtualCluster, name: str) -> dict[str, Any]:
    (found,) = (each for each in (await board(cluster))["loops"] if each["name"] == name)
    return dict(found)


async def command(cluster: VirtualCluster, action: str, **fields: Any) -> dict[str, Any]:
    return await cluster.client.sender.json("POST", PATH, body={"action": action, **fields})


async def ready_pods(cluster: VirtualCluster) -> list[str]:
    pods = await cluster.all(POD)
    return [pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")]


def user(cluster: VirtualCluster, name: str, *groups: str) -> Client:
    return cluster.embedded.components.clients.copying_client(name, groups, agent="kubectl")


@virtual(leader_elect=True)
async def test_deleted_pods_come_back_one_step_after_the_other(cluster: VirtualCluster) -> None:
    await cluster.client.create(workload("Deployment", "web", 3))
    await cluster.settle()
    answer = await command(cluster, "pause", loop="replicaset")
    assert answer["gate"]["own"] == [{"name": REPLICASETS, "mode": "paused", "every": 0.0}]
    assert answer["gate"]["by"] == "kubernetes-admin"
    for name in await ready_pods(cluster):
        await cluster.client.delete(POD, name, "default")
    await cluster.sleep(40)
    assert await ready_pods(cluster) == []
    row = await loop(cluster, REPLICASETS)
    assert (row["mode"], row["depth"]) == ("paused", 1)
    (queued,) = row["queued"]
    assert queued["key"].startswith("default/web-")
    assert queued["changes"] >= 3  # coalesced into one reconcile
    assert (row["kind"], row["resource"], row["group"]) == ("ReplicaSet", "replicasets", "apps")
    # The Lease is renewed meanwhile, so nobody else takes over.
    components = {each["name"]: each for each in (await board(cluster))["components"]}
    assert components["kube-controller-manager"]["state"] == "leads"
    stepped = (await command(cluster, "step", loop=REPLICASETS))["stepped"]
    assert stepped == {"loop": REPLICASETS, "key": queued["key"]}
    await cluster.instant()
    assert len(await ready_pods(cluster)) == 3
    runs = (await board(cluster, f"runs={REPLICASETS}"))["runs"]
    assert runs[0]["key"] == queued["key"]
    assert runs[0]["writes"] >= 3
    assert runs[0]["triggers"]
    assert not runs[0]["error"]
    # What the new Pods cause waits again, until the loop runs.
    await cluster.sleep(5)
    assert (await loop(cluster, REPLICASETS))["depth"] == 1
    await command(cluster, "resume", loop=REPLICASETS)
    await cluster.settle()
    assert (await loop(cluster, REPLICASETS))["depth"] == 0
    assert (await board(cluster))["gate"]["until"] == 0


@virtual()
async def test_a_cluster_is_not_left_paused(cluster: VirtualCluster) -> None:
    await command(cluster, "pause")
    await cluster.client.create(workload("Deployment", "web", 2))
    await cluster.sleep(HOLD_SECONDS - 60)
    assert await cluster.all(REPLICA_SET) == []
    await command(cluster, "renew")
    await cluster.sleep(HOLD_SECONDS - 60)
    assert await cluster.all(REPLICA_SET) == []
    await cluster.sleep(65)
    assert len(await ready_pods(cluster)) == 2
    assert (await board(cluster))["gate"]["mode"] == "run"


@virtual()
async def test_the_scheduler_has_a_gate_and_shows_its_pods(cluster: VirtualCluster) -> None:
    await command(cluster, "pause", loop="scheduler")
    await cluster.client.create(workload("Deployment", "web", 2))
    huge = workload("Deployment", "huge", 1)
    huge["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    await cluster.client.create(huge)
    await cluster.sleep(5)
    row = await loop(cluster, "kube-scheduler")
    assert row["depth"] == 3
    key = row["queued"][-1]["key"]
    assert (await command(cluster, "step", loop="kube-scheduler", key=key))["stepped"]["key"] == key
    await cluster.instant()
    assert (await loop(cluster, "kube-scheduler"))["depth"] == 2
    await command(cluster, "resume", loop="kube-scheduler")
    await cluster.sleep(5)
    row = await loop(cluster, "kube-scheduler")
    (waiting,) = row["waiting"]
    assert waiting["key"].startswith("default/huge-")
    assert "Insufficient cpu" in waiting["message"]
    # A step tries it again now, although nothing has changed.
    await command(cluster, "pause", loop="kube-scheduler")
    attempts = waiting["attempts"]
    await command(cluster, "step", loop="kube-scheduler", key=waiting["key"])
    await cluster.instant()
    assert (await loop(cluster, "kube-scheduler"))["waiting"][0]["attempts"] == attempts + 1


@virtual()
async def test_a_failing_key_shows_its_error_and_when_it_is_retried(cluster: VirtualCluster) -> None:
    await cluster.client.create(plain("v1", "ResourceQuota", "few", "default", spec={"hard": {"pods": "1"}}))
    await cluster.settle()
    await cluster.client.create(workload("ReplicaSet", "web", 3))
    await cluster.sleep(25)
    (delayed,) = (await loop(cluster, REPLICASETS))["delayed"]
    assert delayed["key"] == "default/web"
    assert "exceeded quota: few" in delayed["error"]
    assert delayed["failures"] > 3
    now = (await board(cluster))["now"]
    assert delayed["due"] > now
    # The time at which it is due does not move.
    await cluster.sleep(1)
    (again,) = (await loop(cluster, REPLICASETS))["delayed"]
    assert abs(again["due"] - delayed["due"]) <= 1


@virtual()
async def test_a_breakpoint_stops_before_an_object_is_reconciled(cluster: VirtualCluster) -> None:
    answer = await command(cluster, "break", kind="ReplicaSet")
    number = answer["breakpoint"]["number"]
    await cluster.client.create(workload("Deployment", "web", 2))
    await cluster.sleep(5)
    (found,) = await cluster.all(REPLICA_SET)
    gate = (await board(cluster))["gate"]
    assert gate["mode"] == "paused"
    assert gate["stopped"]["loop"] == REPLICASETS
    assert gate["stopped"]["key"] == f"default/{found['metadata']['name']}"
    assert await ready_pods(cluster) == []
    await command(cluster, "clear", number=number)
    await command(cluster, "resume")
    await cluster.settle()
    assert len(await ready_pods(cluster)) == 2


@virtual()
async def test_a_watch_sends_everything_once_and_then_changes(cluster: VirtualCluster) -> None:
    assert REPLICASETS in (await board(cluster))["deferred"]
    await cluster.client.create(workload("ReplicaSet", "first", 1))
    await cluster.settle()
    stream = await cluster.client.sender.stream("GET", PATH, "watch=true")
    assert stream.status == 200
    lines: list[dict[str, Any]] = []

    async def take() -> None:
        lines.extend(orjson.loads(line) for line in (await anext(stream)).splitlines())

    await take()
    assert {"gate", "components", "loops", "now"} <= lines[0].keys()
    assert REPLICASETS in {each["name"] for each in lines[0]["loops"]}
    await cluster.client.create(workload("ReplicaSet", "web", 1))
    started = cluster.clock.monotonic()
    while not any(each["name"] == REPLICASETS for line in lines[1:] for each in line.get("loops", ())):
        await take()
    assert cluster.clock.monotonic() - started <= 0.5
    assert len(lines[1]["loops"]) < len(lines[0]["loops"])
    stream.close()


@virtual()
async def test_the_same_from_the_command_line(cluster: VirtualCluster, tmp_path: Path) -> None:
    world = World(cluster, tmp_path)

    async def typed(line: str, code: int = 0) -> str:
        found, out, err = await world.typed(line)
        assert found == code, err
        return out + err

    await cluster.client.create(workload("Deployment", "web", 3))
    await cluster.settle()
    assert await typed("loops pause replicaset") == (
        "replicaset-controller is paused (kubernetes-admin). Unless this is renewed, all loops run again in 10m.\n"
    )
    await cluster.client.delete(POD, (await ready_pods(cluster))[0], "default")
    await cluster.sleep(3)
    table = await typed("loops")
    (row,) = (line for line in table.splitlines() if line.startswith(f"{REPLICASETS}  "))
    assert re.fullmatch(rf"{REPLICASETS} +paused +1: default/web-\S+ x\d+ +- +- +\d .*", row)
    assert (await typed("loops step replicaset")).startswith("replicaset-controller reconciles default/web-")
    await cluster.sleep(1)
    runs = await typed("loops replicaset")
    assert re.search(r"^1s +default/web-\S+ .* revision \d+", runs, re.MULTILINE)
    assert await typed("loops resume") == "All loops run.\n"
    assert (await typed("loops break --kind ReplicaSet")).startswith("Breakpoint 1 is set on ReplicaSet (")
    assert await typed("loops break --clear") == "All loops run.\n"
    assert "one reconcile each 2 s" in await typed("loops slow --every 2s")
    assert "one reconcile each 2 s" in await typed("status")
    assert "there is no control loop nope" in await typed("loops pause nope", 1)


@virtual()
async def test_only_administrators_change_the_loops(cluster: VirtualCluster) -> None:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "setpoint:loops"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}]
    binding = plain("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "carol", "", roleRef=role, subjects=subjects)
    await cluster.client.create(binding)
    carol, dave = user(cluster, "carol"), user(cluster, "dave")
    assert (await carol.sender.json("GET", PATH))["loops"]
    with pytest.raises(Forbidden):
        await dave.sender.json("GET", PATH)
    with pytest.raises(Forbidden):
        await carol.sender.json("POST", PATH, body={"action": "pause"})
    await user(cluster, "root", MASTERS).sender.json("POST", PATH, body={"action": "pause"})
    assert (await board(cluster))["gate"]["by"] == "root"


@virtual()
async def test_wrong_commands_are_refused(cluster: VirtualCluster) -> None:
    for fields, expected in (
        ({"action": "stop"}, BadRequest),
        ({"action": "pause", "loop": "no-such"}, NotFound),
        ({"action": "pause", "loops": "all"}, BadRequest),
        ({"action": "slow", "every": 0}, BadRequest),
        ({"action": "slow", "every": "5"}, BadRequest),
        ({"action": "break"}, BadRequest),
        ({"action": "break", "key": "x" * 400}, BadRequest),
        ({"action": "clear", "number": 7}, NotFound),
        ({"action": "step", "loop": REPLICASETS, "key": "default/none"}, Conflict),
    ):
        with pytest.raises(expected):
            await cluster.client.sender.json("POST", PATH, body=fields)
    with pytest.raises(ApiError):
        await cluster.client.sender.json("DELETE", PATH)
    with pytest.raises(NotFound):
        await board(cluster, "runs=no-such")
