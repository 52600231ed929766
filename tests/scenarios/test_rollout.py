"""Rollouts of Deployments with every component running: invariants that hold at every moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.components import components
from setpoint.meta.objects import Obj
from setpoint.system import RandomIds

STORES = ("memory", "lagging")
DEPLOYMENTS, SETS, PODS = builtin("deployments", "apps"), builtin("replicasets", "apps"), builtin("pods")


@pytest.fixture
async def cluster(local_server: Any) -> AsyncIterator[Client]:
    async with components(local_server.api, local_server.clock, RandomIds(1), 3):
        yield local_server.client


def web(image: str, replicas: int, **spec: Any) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
            **spec,
        },
    }


async def follow(client: Client, resource: Any, see: Callable[[dict[str, Obj]], bool], since: str = "") -> None:
    """`see` is shown every state, one change after the other, until it is content."""
    found = await client.list(resource, "default")
    items = {item["metadata"]["name"]: item for item in found.items}
    version = since or found.resource_version
    async with asyncio.timeout(20), client.watch(resource, "default", resource_version=version) as watch:
        while not see(items):
            kind, obj = await watch.__anext__()
            if kind == "DELETED":
                items.pop(obj["metadata"]["name"], None)
            elif kind != "BOOKMARK":
                items[obj["metadata"]["name"]] = obj


def is_complete(deployments: dict[str, Obj]) -> bool:
    found = deployments["web"]
    status, wanted = found["status"], found["spec"]["replicas"]
    counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")}
    return status.get("observedGeneration") == found["metadata"]["generation"] and counts == {wanted}


async def complete(client: Client) -> Obj:
    await follow(client, DEPLOYMENTS, is_complete)
    return await client.get(DEPLOYMENTS, "web", "default")


def image(pod: Obj) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def is_ready(pod: Obj) -> bool:
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        found["type"] == "Ready" and found["status"] == "True" for found in conditions
    )


async def change(client: Client, **spec: Any) -> None:
    await client.patch(DEPLOYMENTS, "web", {"spec": spec}, "default")


def new_template(name: str) -> Obj:
    return {"spec": {"containers": [{"name": "c", "image": name}]}}


async def test_a_rolling_update_stays_within_its_limits_at_every_moment(cluster: Client) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
    await cluster.create(web("one", 10, strategy=rolling))
    await complete(cluster)

    def within_limits(pods: dict[str, Obj]) -> bool:
        alive = [pod for pod in pods.values() if "deletionTimestamp" not in pod["metadata"]]
        assert len(alive) <= 13
        assert sum(is_ready(pod) for pod in alive) >= 8
        return len(alive) == 10 and all(image(pod) == "two" and is_ready(pod) for pod in alive)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(cluster, PODS, within_limits))
        await change(cluster, template=new_template("two"))
    status = (await complete(cluster))["status"]
    assert "unavailableReplicas" not in status
    old, new = sorted((await cluster.list(SETS, "default")).items, key=lambda found: found["spec"]["replicas"])
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 10)
    revision = "deployment.kubernetes.io/revision"
    assert [found["metadata"]["annotations"][revision] for found in (old, new)] == ["1", "2"]


async def test_a_rollback_reuses_the_old_replica_set_with_a_new_revision(cluster: Client) -> None:
    await cluster.create(web("one", 2))
    await complete(cluster)
    await change(cluster, template=new_template("two"))
    await complete(cluster)
    await change(cluster, template=new_template("one"))
    found = await complete(cluster)
    assert found["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    sets = (await cluster.list(SETS, "default")).items
    assert sorted(item["spec"]["replicas"] for item in sets) == [0, 2]
    (current,) = [item for item in sets if item["spec"]["replicas"]]
    assert current["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"] == "1"


async def test_recreate_never_runs_old_and_new_at_once(cluster: Client) -> None:
    await cluster.create(web("one", 4, strategy={"type": "Recreate"}))
    await complete(cluster)

    def never_both(pods: dict[str, Obj]) -> bool:
        running = {image(pod) for pod in pods.values() if pod["status"]["phase"] == "Running"}
        assert len(running) <= 1
        return running == {"two"} and len(pods) == 4 and all(map(is_ready, pods.values()))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follow(cluster, PODS, never_both))
        await change(cluster, template=new_template("two"))
    await complete(cluster)


async def test_a_paused_deployment_scales_but_does_not_roll_out(cluster: Client) -> None:
    await cluster.create(web("one", 2))
    await complete(cluster)
    await change(cluster, paused=True, replicas=4, template=new_template("two"))

    def four_of_the_old(pods: dict[str, Obj]) -> bool:
        assert {image(pod) for pod in pods.values()} <= {"one"}
        return len(pods) == 4 and all(map(is_ready, pods.values()))

    await follow(cluster, PODS, four_of_the_old)
    await change(cluster, paused=None)
    await complete(cluster)
    assert {image(pod) for pod in (await cluster.list(PODS, "default")).items if is_ready(pod)} == {"two"}


async def test_the_revision_history_limit_is_enforced(cluster: Client) -> None:
    await cluster.create(web("zero", 1, revisionHistoryLimit=1))
    await complete(cluster)
    for name in ("one", "two", "three"):
        await change(cluster, template=new_template(name))
        await complete(cluster)
    await follow(cluster, SETS, lambda sets: len(sets) <= 2)
    images = {
        found["spec"]["template"]["spec"]["containers"][0]["image"]
        for found in (await cluster.list(SETS, "default")).items
    }
    assert images == {"two", "three"}


async def test_a_hash_collision_leads_to_another_hash(cluster: Client) -> None:
    await cluster.create(web("one", 1))
    await complete(cluster)
    (first,) = (await cluster.list(SETS, "default")).items
    squatter = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": first["metadata"]["name"], "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "other"}},
            "template": {
                "metadata": {"labels": {"app": "other"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    await cluster.delete(DEPLOYMENTS, "web", "default", propagation="Background")
    await cluster.delete(SETS, first["metadata"]["name"], "default", propagation="Background")
    await cluster.delete_collection(PODS, "default")
    await cluster.create(squatter)
    await cluster.create(web("one", 1))
    found = await complete(cluster)
    assert found["status"]["collisionCount"] == 1
