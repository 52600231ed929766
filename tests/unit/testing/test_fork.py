"""Forks of a cluster: changes in one are not visible in the other, and both reach the same end state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.meta.errors import AlreadyExists
from setpoint.meta.objects import Obj
from setpoint.sdk import Context, Controller, Kind, Object, Operator
from setpoint.testing import Snapshot, VirtualCluster, prepared, run_virtual, virtual, virtual_cluster
from setpoint.testing.end_state import differences, end_state

PODS, DEPLOYMENTS, CONFIG_MAPS = builtin("pods"), builtin("deployments", "apps"), builtin("configmaps")
JOBS, CLAIMS = builtin("jobs", "batch"), builtin("persistentvolumeclaims")


def config_map(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def template(app: str, **more: Any) -> Obj:
    container = {"name": "c", "image": "nginx", **more.pop("container", {})}
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [container], **more}}


def workload(kind: str, name: str, replicas: int, **more: Any) -> Obj:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name), **more},
    }


def job(name: str, completions: int, seconds: int) -> Obj:
    work = template(name, restartPolicy="Never", container={"image": "busybox", "command": ["sleep", str(seconds)]})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"completions": completions, "parallelism": 2, "template": work},
    }


async def busy(cluster: VirtualCluster) -> None:
    """Leave much work unfinished: a rollout, a Job, a StatefulSet that starts one Pod after the other."""
    create = cluster.client.create
    await create(workload("Deployment", "web", 6))
    await create(workload("Deployment", "still", 2))
    await cluster.settle()
    await create(job("work", 6, 40))
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await create(workload("StatefulSet", "db", 3, serviceName="db", volumeClaimTemplates=[claim], minReadySeconds=10))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }
    await create(service)
    await cluster.sleep(50)
    slow = {"spec": {"minReadySeconds": 15, "template": template("web", container={"image": "nginx:1.27"})}}
    await cluster.client.patch(DEPLOYMENTS, "web", slow, "default", kind="strategic")
    await cluster.sleep(5)


async def container_identities(cluster: VirtualCluster) -> dict[str, tuple[str, str, int]]:
    """Return uid, container id and restarts of the running Pods, by name."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], found["containerID"], found["restartCount"])
        for pod in await cluster.all(PODS)
        for found in pod["status"].get("containerStatuses") or ()
        if "running" in found["state"]
    }


@virtual(nodes=3)
async def test_a_fork_of_a_busy_cluster_reaches_the_same_end_state(cluster: VirtualCluster) -> None:
    await busy(cluster)
    found = await cluster.client.get(JOBS, "work", "default")
    assert 0 < found["status"]["succeeded"] < 6, "the Job is half done"
    rollout = (await cluster.client.get(DEPLOYMENTS, "web", "default"))["status"]
    assert 0 < rollout["updatedReplicas"] < 6, "and so is the rollout"
    before = await container_identities(cluster)
    async with cluster.fork() as other:
        assert other.clock.now() == cluster.clock.now()
        assert await container_identities(other) == before
        await cluster.sleep(300)
        assert differences(await end_state(cluster.client), await end_state(other.client)) == ""
        assert (await other.client.get(JOBS, "work", "default"))["status"]["succeeded"] == 6
        for each in (cluster, other):
            after = await container_identities(each)
            for name in before:
                if name.startswith(("still", "db")):
                    assert after[name] == before[name], "what runs goes on running"
        assert len(await other.all(CLAIMS)) == 3
        async with other.fork() as third:
            await third.sleep(60)
            assert third.embedded.write_log.change_count == 0, "nothing is left to do, and so nothing is done"


@virtual(nodes=1)
async def test_changes_in_a_fork_are_not_visible_in_the_original(cluster: VirtualCluster) -> None:
    await cluster.client.create(config_map("before"))
    revision = (await cluster.client.list(CONFIG_MAPS, "default")).resource_version
    async with (
        cluster.fork() as other,
        cluster.client.watch(CONFIG_MAPS, "default", resource_version=revision) as watch,
    ):
        await other.client.create(config_map("there"))
        await other.client.delete(CONFIG_MAPS, "before", "default")
        await cluster.client.create(config_map("here"))
        with pytest.raises(AlreadyExists):
            await cluster.client.create(config_map("before"))
        async for kind, obj in watch:
            assert (kind, obj["metadata"]["name"]) == ("ADDED", "here")
            break

        assert {each["metadata"]["name"] for each in await cluster.all(CONFIG_MAPS)} >= {"before", "here"}
        names = {each["metadata"]["name"] for each in await other.all(CONFIG_MAPS)}
        assert "there" in names and not names & {"before", "here"}

        # Components belong to one cluster.
        await other.kill("controllers")
        await cluster.client.create(workload("Deployment", "web", 1))
        await other.client.create(workload("Deployment", "web", 1))
        await cluster.sleep(10)
        assert await cluster.all(PODS) and not await other.all(PODS)
    await cluster.client.create(config_map("afterwards"))


@virtual(nodes=0)
async def test_watches_resume_in_a_fork(cluster: VirtualCluster) -> None:
    """The history of a fork is that of the original."""
    revision = (await cluster.client.list(CONFIG_MAPS, "default")).resource_version
    await cluster.client.create(config_map("one"))
    async with cluster.fork() as other:
        await other.client.create(config_map("two"))
        seen = []
        async with other.client.watch(CONFIG_MAPS, "default", resource_version=revision) as watch:
            async for _, obj in watch:
                seen.append(obj["metadata"]["name"])
                if len(seen) == 2:
                    break
        assert seen == ["one", "two"]


@virtual(nodes=0)
async def test_generated_names_do_not_collide(cluster: VirtualCluster) -> None:
    """This includes the fork of a fork, whose components draw as many random numbers as those of the first."""
    made = [await cluster.client.create(config_map("one"))]
    async with cluster.fork() as other:
        made.append(await other.client.create(config_map("two")))
        async with other.fork() as third:
            made.append(await third.client.create(config_map("three")))
            assert {each["metadata"]["name"] for each in await third.all(CONFIG_MAPS)} >= {"one", "two", "three"}
    assert len({each["metadata"]["uid"] for each in made}) == 3


@virtual(nodes=0)
async def test_tokens_are_valid_in_a_fork(cluster: VirtualCluster) -> None:
    await cluster.settle()
    group = "authentication.k8s.io/v1"
    request = {"apiVersion": group, "kind": "TokenRequest", "spec": {}}
    accounts = builtin("serviceaccounts")
    made = await cluster.client.create(
        request, resource=accounts, namespace="default", name="default", subresource="token"
    )
    review = {"apiVersion": group, "kind": "TokenReview", "spec": {"token": made["status"]["token"]}}
    async with cluster.fork() as other:
        assert (await other.client.create(review))["status"]["authenticated"]
        await other.client.delete(accounts, "default", "default")
        assert not (await other.client.create(review))["status"].get("authenticated")
    assert (await cluster.client.create(review))["status"]["authenticated"]


@dataclass
class TeapotSpec:
    cups: int = 4


Teapot = Kind("example.com/v1", "Teapot", spec=TeapotSpec)


async def brew(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
    data = {"cups": str(teapot.spec.cups)}
    await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": teapot.name}, "data": data})


tea = Operator("tea", Controller(Teapot, brew, owns=(Kind("v1", "ConfigMap"),)))


@virtual(nodes=0)
async def test_custom_kinds_exist_and_operators_can_be_started(cluster: VirtualCluster) -> None:
    teapot = {
        "apiVersion": "example.com/v1",
        "kind": "Teapot",
        "metadata": {"name": "brown", "namespace": "default"},
        "spec": {"cups": 2},
    }
    async with cluster.running(tea):
        await cluster.client.create(teapot)
        await cluster.settle()
        async with cluster.fork() as other:
            await other.client.patch(Teapot.ref, "brown", {"spec": {"cups": 7}}, "default")
            await other.settle()
            found = await other.client.get(CONFIG_MAPS, "brown", "default")
            assert found["data"] == {"cups": "2"}, "no operator runs in the fork"
            async with other.running(tea):
                await other.settle()
                assert (await other.client.get(CONFIG_MAPS, "brown", "default"))["data"] == {"cups": "7"}
        assert (await cluster.client.get(CONFIG_MAPS, "brown", "default"))["data"] == {"cups": "2"}


# -- snapshots --------------------------------------------------------------------------------------------------------


async def forked(start: Snapshot | None = None, **options: Any) -> str:
    """Return the digest of what happens in a fork."""
    async with virtual_cluster(start=start, **options) as cluster:
        await cluster.client.create(workload("Deployment", "more", 2))
        await cluster.settle()
        return cluster.fingerprint()


prepared_runs = 0


@prepared(nodes=1, seed=4)
async def with_web(cluster: VirtualCluster) -> None:
    global prepared_runs
    prepared_runs += 1
    await cluster.client.create(workload("Deployment", "web", 2))
    await cluster.sleep(20.3)


def test_a_snapshot_starts_many_equal_clusters() -> None:
    snapshot = with_web.snapshot()
    first = run_virtual(forked, snapshot)
    assert run_virtual(forked, with_web.snapshot()) == first
    assert run_virtual(forked, snapshot, seed=9) != first
    assert prepared_runs == 1


def test_clusters_in_several_threads_are_independent() -> None:
    """Each thread has its own event loop and cluster."""
    snapshot = with_web.snapshot()
    with ThreadPoolExecutor(3) as threads:
        found = {each.result() for each in [threads.submit(run_virtual, forked, snapshot) for _ in range(3)]}
    assert found == {run_virtual(forked, snapshot)}


@virtual(start=with_web)
async def test_a_test_starts_from_the_prepared_state(cluster: VirtualCluster) -> None:
    assert (cluster.clock.now() - with_web.snapshot().now).total_seconds() == 0
    assert cluster.clock.monotonic() == 0
    found = await container_identities(cluster)
    assert len(found) == 2 and len(await cluster.all(builtin("nodes"), "")) == 1
    await cluster.client.create(workload("Deployment", "more", 2))
    await cluster.settle()
    assert (await container_identities(cluster)).items() > found.items()


@virtual(start=with_web, nodes=2)
async def test_options_of_a_snapshot_can_be_changed(cluster: VirtualCluster) -> None:
    assert not await cluster.find(DEPLOYMENTS, "more"), "no test sees what another did"
    assert len(await cluster.all(builtin("nodes"), "")) == 2
