"""Story C6: autoscaling, disruption budgets and drain, quotas and limit ranges, with every component running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from metrics_by_hand import MetricsByHand

from setpoint.client.resources import builtin
from setpoint.controllers.builtin import CONTROLLERS
from setpoint.controllers.pod_control import PODS
from setpoint.controllers.podautoscaler.controller import autoscaler
from setpoint.meta.errors import Forbidden, NotFound, TooManyRequests
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

NODES, DEPLOYMENTS, QUOTAS = builtin("nodes"), builtin("deployments", "apps"), builtin("resourcequotas")
BUDGETS = builtin("poddisruptionbudgets", "policy")
SETS = builtin("replicasets", "apps")


def a_deployment(replicas: int, resources: Obj | None = None, namespace: str = "default") -> Obj:
    container = {"name": "c", "image": "nginx", "resources": resources or {}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
        },
    }


async def available(cluster: VirtualCluster, count: int) -> bool:
    status = (await cluster.client.get(DEPLOYMENTS, "web", "default")).get("status") or {}
    return bool(status.get("availableReplicas", 0) == count and status.get("replicas") == count)


# -- autoscaling ------------------------------------------------------------------------------------------------------


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> MetricsByHand:
    metrics = MetricsByHand()

    def build(manager: Any, options: Any) -> Any:
        metrics.clock, metrics.running = manager.clock, manager.informer(PODS)
        return autoscaler(manager, options, metrics)

    monkeypatch.setitem(CONTROLLERS, "horizontal-pod-autoscaler-controller", build)
    return metrics


@virtual(nodes=3, leader_elect=False)
async def test_replicas_follow_the_load(cluster: VirtualCluster, load: MetricsByHand) -> None:
    await cluster.client.create(a_deployment(2, {"requests": {"cpu": "100m"}}))
    await cluster.until(lambda: available(cluster, 2))
    target = {"type": "Utilization", "averageUtilization": 50}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 8,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }
    load.usage["cpu"] = 50
    await cluster.client.create(hpa)
    await cluster.sleep(400)
    assert await available(cluster, 2)
    load.usage["cpu"] = 200
    await cluster.until(lambda: available(cluster, 8), within=120)
    load.usage["cpu"] = 10
    await cluster.sleep(250)
    assert await available(cluster, 8), "not before five minutes of little load"
    await cluster.until(lambda: available(cluster, 2), within=500)


# -- disruption -------------------------------------------------------------------------------------------------------


async def drain(cluster: VirtualCluster, node: str) -> int:
    """As kubectl does: cordon, then evict everything, again and again while budgets say no. How often they did."""
    await cluster.client.patch(NODES, node, {"spec": {"unschedulable": True}})
    refused = 0

    async def evict(name: str) -> None:
        nonlocal refused
        meta = {"name": name, "namespace": "default"}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        while True:
            try:
                await cluster.client.create(eviction, resource=PODS, name=name, subresource="eviction")
            except TooManyRequests:
                refused += 1
                await cluster.sleep(5)
            except NotFound:
                return
            else:
                break
        while await cluster.find(PODS, name) is not None:
            await cluster.sleep(1)

    pods = (await cluster.client.list(PODS, "default", field_selector=f"spec.nodeName={node}")).items
    await asyncio.gather(*(evict(pod["metadata"]["name"]) for pod in pods))
    return refused


@virtual(nodes=3, leader_elect=False)
async def test_a_drain_respects_the_disruption_budget(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_deployment(9))
    await cluster.until(lambda: available(cluster, 9))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 8, "selector": {"matchLabels": {"app": "web"}}},
    }
    await cluster.client.create(budget)
    await cluster.sleep(1)
    lowest = 9

    async def instrument() -> None:
        nonlocal lowest
        while True:
            pods = await cluster.all(PODS, selector="app=web")
            healthy = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)]
            lowest = min(lowest, len(healthy))
            await cluster.sleep(0.05)

    watching = asyncio.ensure_future(instrument())
    node = (await cluster.all(PODS))[0]["spec"]["nodeName"]
    refused = await drain(cluster, node)
    watching.cancel()
    assert refused > 0 and lowest >= 8
    await cluster.until(lambda: available(cluster, 9))
    assert all(pod["spec"]["nodeName"] != node for pod in await cluster.all(PODS))
    status = (await cluster.client.get(BUDGETS, "web", "default"))["status"]
    assert (status["currentHealthy"], status["disruptionsAllowed"], status.get("disruptedPods")) == (9, 1, None)


def _is_ready(pod: Obj) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


# -- quotas -----------------------------------------------------------------------------------------------------------


@virtual(nodes=3, leader_elect=False)
async def test_limit_ranges_set_defaults_and_quotas_are_enforced(cluster: VirtualCluster) -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "sizes", "namespace": "default"},
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "default": {"cpu": "200m"},
                    "defaultRequest": {"cpu": "100m"},
                    "max": {"cpu": "1"},
                }
            ]
        },
    }
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "share", "namespace": "default"},
        "spec": {"hard": {"requests.cpu": "500m", "limits.cpu": "2", "pods": "10"}},
    }
    await cluster.client.create(limits)
    await cluster.client.create(quota)
    await cluster.sleep(1)
    greedy = a_deployment(1, {"limits": {"cpu": "2"}})["spec"]["template"]
    pod = {**greedy, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy", "namespace": "default"}}
    with pytest.raises(Forbidden, match="maximum cpu usage per Container is 1"):
        await cluster.client.create(pod)
    await cluster.client.create(a_deployment(8))
    await cluster.sleep(30)
    pods = await cluster.all(PODS)
    assert len(pods) == 5, "five times 100m is all there is"
    assert {pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] for pod in pods} == {"200m"}
    used = (await cluster.client.get(QUOTAS, "share", "default"))["status"]["used"]
    assert used == {"requests.cpu": "500m", "limits.cpu": "1", "pods": "5"}
    (replica_set,) = await cluster.all(SETS)
    (failure,) = replica_set["status"]["conditions"]
    assert (failure["type"], failure["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert "exceeded quota: share, requested: requests.cpu=100m, used: requests.cpu=500m" in failure["message"]
    # More is allowed: what was wanted all along comes by itself.
    await cluster.client.patch(QUOTAS, "share", {"spec": {"hard": {"requests.cpu": "1"}}}, "default")
    await cluster.until(lambda: available(cluster, 8), within=1200)
    # What goes away is given back.
    await cluster.client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")
    await cluster.until(lambda: available(cluster, 1))
    await cluster.sleep(60)
    used = (await cluster.client.get(QUOTAS, "share", "default"))["status"]["used"]
    assert used == {"requests.cpu": "100m", "limits.cpu": "200m", "pods": "1"}
