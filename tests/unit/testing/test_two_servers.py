"""Two API servers on one medium, of which the second, used by the controllers, sees commits late: every lag is tried."""

from __future__ import annotations

import random
from typing import Any

import pytest

from setpoint.client.kubeconfig import Impersonation
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, explore, virtual, virtual_cluster
from setpoint.testing.virtual_time import run_virtual

DEPLOYMENTS, PODS = ("apps/v1", "Deployment"), ("v1", "Pod")
CONTROLLERS = ("deployment-controller", "replicaset-controller", "serviceaccount-controller")


def in_time(revision: int) -> float:
    return 0.0


def web(replicas: int) -> Obj:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }


async def pods(cluster: VirtualCluster) -> list[Obj]:
    return [pod for pod in await cluster.all(PODS) if not pod["metadata"].get("deletionTimestamp")]


async def scaled_and_disturbed(cluster: VirtualCluster) -> None:
    """Users act through the first server, while the controllers see it late."""

    async def has(count: int) -> bool:
        return len(await pods(cluster)) == count

    await cluster.client.create(web(3))
    await cluster.until(lambda: has(3))
    await cluster.client.delete(PODS, (await pods(cluster))[0]["metadata"]["name"], "default")
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}}, "default")
    await cluster.until(lambda: has(5))
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, "default")


async def exactly_two_pods(cluster: VirtualCluster) -> None:
    assert len(await pods(cluster)) == 2
    (replicas,) = await cluster.all(("apps/v1", "ReplicaSet"))
    assert replicas["spec"]["replicas"] == 2
    for client in (cluster.client, cluster.second.client):
        assert len((await client.list(PODS, "default")).items) == 2


def test_a_lag_at_every_write_of_the_controllers() -> None:
    found = explore(
        scenario=scaled_and_disturbed,
        check=exactly_two_pods,
        component="controllers",
        faults=("lag", "lag/30s"),
        limit=10,
        afterwards="15s",
        nodes=0,
        scheduler=False,
        controllers=CONTROLLERS,
        replica_delay=in_time,
    )
    assert found.tried == 10


@pytest.mark.parametrize("seed", range(4))
def test_random_lags_of_every_commit(seed: int) -> None:
    lags = random.Random(seed)
    delays: dict[int, float] = {}

    def delay(revision: int) -> float:
        return delays.setdefault(revision, lags.choice((0.0, 0.0, 0.01, 0.3, 2.0)))

    async def run() -> list[Any]:
        options: dict[str, Any] = {"nodes": 0, "scheduler": False, "controllers": CONTROLLERS}
        async with virtual_cluster(replica_delay=delay, **options) as cluster:
            await scaled_and_disturbed(cluster)
            await cluster.settle(quiet=10)
            await exactly_two_pods(cluster)
            return [(each.at, each.writer, each.key) for each in cluster.embedded.write_log.writes]

    assert run_virtual(run) == run_virtual(run), "the same lags give the same writes"


@virtual(nodes=0, scheduler=False, controllers=(), replica_delay=lambda revision: 3.0)
async def test_a_role_that_the_first_server_revokes_is_refused_by_the_second(cluster: VirtualCluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}}
    await cluster.client.create({**role, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "b"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
    await cluster.client.create({**binding, "roleRef": reference, "subjects": [subject]})
    jane = cluster.second.client.named("test", Impersonation("jane"))
    begin = cluster.clock.monotonic()
    await jane.list(("v1", "ConfigMap"), "default")
    assert cluster.clock.monotonic() - begin >= 2.9, "the second server waited until it knew of the binding"
    await cluster.client.delete(("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"), "b")
    with pytest.raises(Forbidden):
        await jane.list(("v1", "ConfigMap"), "default")


@virtual(nodes=0, scheduler=False, controllers=())
async def test_a_cluster_with_one_server(cluster: VirtualCluster) -> None:
    with pytest.raises(ValueError, match="the option replica_delay runs a second one"):
        _ = cluster.second
