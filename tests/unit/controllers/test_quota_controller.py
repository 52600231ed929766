"""Quotas through the API server: admission and controller together."""

from __future__ import annotations

from typing import Any

import pytest
from kubelet_by_hand import Kubelet

from setpoint.client.resources import builtin
from setpoint.meta.errors import Forbidden
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
QUOTAS, PODS, MAPS = builtin("resourcequotas"), builtin("pods"), builtin("configmaps")
OWN = ("resourcequota-controller", "serviceaccount-controller")
bare = virtual(nodes=0, scheduler=False, controllers=OWN, leader_elect=False)


def a_quota(hard: dict[str, str], name: str = "quota", **spec: Any) -> Obj:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard, **spec}}


def a_pod(name: str, requests: Obj | None = None, limits: Obj | None = None, **spec: Any) -> Obj:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}], **spec},
    }


def an_object(kind: str, name: str, **rest: Any) -> Obj:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, **rest}


def a_claim(name: str, storage: str, storage_class: str) -> Obj:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": storage}},
    }
    return an_object("PersistentVolumeClaim", name, spec=spec)


async def used(cluster: VirtualCluster, name: str = "quota") -> dict[str, str]:
    await cluster.sleep(0.2)
    found: dict[str, str] = ((await cluster.client.get(QUOTAS, name, "default")).get("status") or {}).get("used") or {}
    return found


@bare
async def test_existing_objects_count(cluster: VirtualCluster) -> None:
    client = cluster.client
    await client.create(
        a_pod(
            "a",
            {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"},
            {"cpu": "1", "memory": "2Gi", "example.com/gpu": "2"},
        )
    )
    await client.create(a_pod("b", {"cpu": "250m", "ephemeral-storage": "1Gi"}))
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    await client.create(an_object("Service", "np", spec={"type": "NodePort", "ports": ports}))
    await client.create(an_object("Service", "lb", spec={"type": "LoadBalancer", "ports": ports}))
    await client.create(an_object("Service", "plain", spec={"ports": ports}))
    await client.create(an_object("ConfigMap", "m"))
    await client.create(an_object("Secret", "s"))
    await client.create(a_claim("gold", "10Gi", "gold"))
    await client.create(a_claim("tin", "5Gi", "tin"))
    hard = dict.fromkeys(
        (
            "pods",
            "count/pods",
            "cpu",
            "requests.cpu",
            "limits.cpu",
            "requests.memory",
            "limits.memory",
            "requests.ephemeral-storage",
            "requests.example.com/gpu",
            "services",
            "services.nodeports",
            "services.loadbalancers",
            "configmaps",
            "count/secrets",
            "persistentvolumeclaims",
            "requests.storage",
            "gold.storageclass.storage.k8s.io/requests.storage",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims",
            "count/deployments.apps",
            "replicationcontrollers",
            "resourcequotas",
        ),
        "100",
    )
    await client.create(a_quota(hard))
    found = await used(cluster)
    assert found == {
        "pods": "2",
        "count/pods": "2",
        "cpu": "750m",
        "requests.cpu": "750m",
        "limits.cpu": "1",
        "requests.memory": "1Gi",
        "limits.memory": "2Gi",
        "requests.ephemeral-storage": "1Gi",
        "requests.example.com/gpu": "2",
        "services": "4",
        "services.nodeports": "4",
        "services.loadbalancers": "1",
        "configmaps": "1",
        "count/secrets": "1",
        "persistentvolumeclaims": "2",
        "requests.storage": "15Gi",
        "gold.storageclass.storage.k8s.io/requests.storage": "10Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "count/deployments.apps": "0",
        "replicationcontrollers": "0",
        "resourcequotas": "1",
    }
    status = (await client.get(QUOTAS, "quota", "default"))["status"]
    assert status["hard"] == hard


@bare
async def test_deleted_and_finished_objects_are_released(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_quota({"pods": "2", "cpu": "1", "configmaps": "1"}))
    assert await used(cluster) == {"pods": "0", "cpu": "0", "configmaps": "0"}
    await cluster.client.create(a_pod("a", {"cpu": "400m"}))
    await cluster.client.create(a_pod("b", {"cpu": "500m"}))
    await cluster.client.create(an_object("ConfigMap", "m"))
    assert await used(cluster) == {"pods": "2", "cpu": "900m", "configmaps": "1"}
    with pytest.raises(Forbidden, match="exceeded quota: quota, requested: pods=1, used: pods=2, limited: pods=2"):
        await cluster.client.create(a_pod("c", {"cpu": "1m"}))
    await cluster.client.delete(MAPS, "m", "default")
    assert (await used(cluster))["configmaps"] == "0"
    await cluster.client.delete(PODS, "a", "default")
    assert await used(cluster) == {"pods": "1", "cpu": "500m", "configmaps": "0"}
    await kubelet.succeed(*await kubelet.pods())
    assert await used(cluster) == {"pods": "0", "cpu": "0", "configmaps": "0"}
    await cluster.client.create(a_pod("c", {"cpu": "1"}))


@bare
async def test_changed_limits_apply_at_once(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_quota({"pods": "2"}))
    await cluster.client.create(an_object("ConfigMap", "m"))
    assert await used(cluster) == {"pods": "0"}
    await cluster.client.patch(QUOTAS, "quota", {"spec": {"hard": {"pods": None, "configmaps": "5"}}}, "default")
    assert await used(cluster) == {"configmaps": "1"}
    assert (await cluster.client.get(QUOTAS, "quota", "default"))["status"]["hard"] == {"configmaps": "5"}


@bare
async def test_scopes(cluster: VirtualCluster) -> None:
    client = cluster.client
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    await client.create(priority)
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    specs: dict[str, Obj] = {
        "best": {"scopes": ["BestEffort"]},
        "not-best": {"scopes": ["NotBestEffort"]},
        "ending": {"scopes": ["Terminating"]},
        "lasting": {"scopes": ["NotTerminating"]},
        "high": {"scopeSelector": selector},
        "all": {},
    }
    for name, spec in specs.items():
        await client.create(a_quota({"pods": "10"}, name, **spec))
    await cluster.sleep(0.5)
    await client.create(a_pod("best"))
    await client.create(a_pod("sized", {"cpu": "1"}))
    await client.create(a_pod("short", activeDeadlineSeconds=10))
    await client.create(a_pod("high", priorityClassName="high"))
    # Once as charged by admission, once as added up from nothing.
    for _ in range(2):
        counts = {
            name: (await used(cluster, name))["pods"] for name in ("best", "not-best", "ending", "lasting", "high")
        }
        assert counts == {"best": "3", "not-best": "1", "ending": "1", "lasting": "3", "high": "1"}
        assert await used(cluster, "all") == {"pods": "4"}
        for quota in await cluster.all(QUOTAS):
            await client.update({**quota, "status": {}}, subresource="status")
        await cluster.sleep(301)


@bare
async def test_unused_charges_of_admission_are_corrected(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_quota({"configmaps": "5"}))
    await used(cluster)
    wrong = {"status": {"used": {"configmaps": "4"}}}
    await cluster.client.patch(QUOTAS, "quota", wrong, "default", subresource="status")
    assert await used(cluster) == {"configmaps": "4"}
    await cluster.sleep(301)
    assert await used(cluster) == {"configmaps": "0"}


@bare
async def test_an_overdue_terminating_pod_is_not_charged(cluster: VirtualCluster) -> None:
    kubelet = Kubelet(cluster.client, cluster.clock)
    await cluster.client.create(a_quota({"pods": "1"}))
    await used(cluster)
    await cluster.client.create(a_pod("a"))
    await kubelet.run(*await kubelet.pods())
    await cluster.client.delete(PODS, "a", "default", grace_period=30)
    assert await used(cluster) == {"pods": "1"}
    await cluster.sleep(400)
    assert await used(cluster) == {"pods": "0"}


@bare
async def test_concurrent_creations_never_exceed_the_quota(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_quota({"configmaps": "10"}))
    await used(cluster)
    made = 0
    for number in range(30):
        try:
            await cluster.client.create(an_object("ConfigMap", f"m{number}"))
            made += 1
        except Forbidden:
            gone = (await cluster.all(MAPS))[0]["metadata"]["name"]
            await cluster.client.delete(MAPS, gone, "default")
            await cluster.sleep(0.1)
        assert len(await cluster.all(MAPS)) <= 10
    assert made > 15
    await cluster.sleep(5)
    assert await used(cluster) == {"configmaps": str(len(await cluster.all(MAPS)))}
