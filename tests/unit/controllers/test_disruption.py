"""Disruption budgets and evictions through the API server; the test acts as the kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from kubelet_by_hand import Kubelet

from setpoint.client.resources import builtin
from setpoint.meta.errors import TooManyRequests
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
BUDGETS, PODS = builtin("poddisruptionbudgets", "policy"), builtin("pods")
SETS, DEPLOYMENTS = builtin("replicasets", "apps"), builtin("deployments", "apps")
OWN = ("disruption-controller", "replicaset-controller", "deployment-controller", "serviceaccount-controller")
bare = virtual(nodes=0, scheduler=False, controllers=OWN, leader_elect=False)


def a_budget(**spec: Any) -> Obj:
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "budget", "namespace": "default"},
        "spec": {"selector": selector, **spec},
    }


def a_pod(name: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def a_workload(kind: str, replicas: int, name: str = "web") -> Obj:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


class Harness:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self.kubelet = Kubelet(cluster.client, cluster.clock)

    async def status(self) -> Obj:
        await self.cluster.sleep(0.5)
        found: Obj = (await self.cluster.client.get(BUDGETS, "budget", "default"))["status"]
        return found

    async def numbers(self) -> tuple[int, int, int, int]:
        """Expected, healthy, desired, allowed."""
        status = await self.status()
        names = ("expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed")
        return tuple(status[name] for name in names)

    async def run_all(self) -> list[Obj]:
        await self.cluster.sleep(0.5)
        pods = await self.kubelet.pods()
        await self.kubelet.run(*pods)
        return pods

    async def evict(self, name: str) -> None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        await self.cluster.client.create(eviction, resource=PODS, name=name, subresource="eviction")


@bare
async def test_an_absolute_number_needs_no_controller(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_budget(minAvailable=1))
    status = await harness.status()
    assert await cluster.events("budget") == [("Normal", "NoPods", "No matching pods found")]
    for name in ("a", "b", "c"):
        await cluster.client.create(a_pod(name))
    assert await harness.numbers() == (3, 0, 1, 0)
    await harness.run_all()
    assert await harness.numbers() == (3, 3, 1, 2)
    status = await harness.status()
    assert status["observedGeneration"] == 1
    (allowed,) = status["conditions"]
    assert allowed == {
        "type": "DisruptionAllowed",
        "status": "True",
        "reason": "SufficientPods",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": allowed["lastTransitionTime"],
    }


@bare
@pytest.mark.parametrize(
    ("spec", "numbers"),
    [
        ({"maxUnavailable": 1}, (7, 7, 6, 1)),
        ({"maxUnavailable": "30%"}, (7, 7, 4, 3)),
        ({"minAvailable": "30%"}, (7, 7, 3, 4)),
        ({"minAvailable": "100%"}, (7, 7, 7, 0)),
        ({"maxUnavailable": 10}, (7, 7, 0, 7)),
    ],
)
async def test_percentages_refer_to_the_desired_replicas(cluster: VirtualCluster, spec: Obj, numbers: Any) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_workload("Deployment", 7))
    await cluster.sleep(0.5)
    await cluster.client.create(a_budget(**spec))
    assert (await harness.numbers())[:2] == (7, 0)
    await harness.run_all()
    assert await harness.numbers() == numbers


@bare
async def test_no_disruption_is_allowed_if_the_scale_is_unknown(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    pod = a_pod("a")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1-2", "controller": True}
    pod["metadata"]["ownerReferences"] = [owner]
    await cluster.client.create(pod)
    await cluster.client.create(a_budget(maxUnavailable=1))
    status = await harness.status()
    (failed,) = status["conditions"]
    assert (failed["status"], failed["reason"]) == ("False", "SyncFailed")
    assert failed["message"] == "jobs.batch does not implement the scale subresource"
    assert status["disruptionsAllowed"] == 0
    assert (await cluster.events("budget"))[-1] == (
        "Warning",
        "CalculateExpectedPodCountFailed",
        "Failed to calculate the number of expected pods: jobs.batch does not implement the scale subresource",
    )
    assert "observedGeneration" not in status
    await harness.run_all()
    with pytest.raises(TooManyRequests):
        await harness.evict("a")


@bare
async def test_unmanaged_pods_are_reported(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_pod("a"))
    await cluster.client.create(a_budget(maxUnavailable="10%"))
    assert await harness.numbers() == (0, 0, 0, 0)
    ((kind, reason, text),) = await cluster.events("budget")
    assert (kind, reason) == ("Warning", "UnmanagedPods")
    shown = "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},}"
    assert text.startswith(f"Pods selected by this PodDisruptionBudget (selector: {shown}) were found to be unmanaged.")


@bare
async def test_the_scale_of_custom_controllers_is_requested(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    replica_set = a_workload("ReplicaSet", 5)
    gone = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone", "uid": "1-2", "controller": True}
    replica_set["metadata"]["ownerReferences"] = [gone]
    await cluster.client.create(replica_set)
    await cluster.sleep(0.5)
    await cluster.client.create(a_budget(maxUnavailable=2))
    assert await harness.numbers() == (5, 0, 3, 0)


@bare
async def test_evictions_consume_the_budget_and_replacements_restore_it(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_workload("ReplicaSet", 3))
    await cluster.client.create(a_budget(minAvailable=2))
    pods = await harness.run_all()
    assert (await harness.numbers())[3] == 1
    first, second = pods[0]["metadata"]["name"], pods[1]["metadata"]["name"]
    await harness.evict(first)
    with pytest.raises(TooManyRequests) as refused:
        await harness.evict(second)
    (cause,) = (refused.value.details or {})["causes"]
    assert cause["message"].startswith("The disruption budget budget needs 2 healthy pods and has ")
    status = await harness.status()
    assert "disruptedPods" not in status, "it is on its way out: no need to remember"
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 0)
    await harness.kubelet.bury(pods[0])
    await harness.run_all()
    assert (await harness.numbers())[1:] == (3, 2, 1)
    await harness.evict(second)


@bare
async def test_an_evicted_pod_that_stays_counts_again_after_two_minutes(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_pod("a"))
    await cluster.client.create(a_budget(minAvailable=0))
    await harness.run_all()
    await cluster.sleep(1)
    noted = {"status": {"disruptedPods": {"a": format_time(cluster.clock.now()), "gone": "2026-01-01T00:00:00Z"}}}
    await cluster.client.patch(BUDGETS, "budget", noted, "default", subresource="status")
    status = await harness.status()
    assert list(status["disruptedPods"]) == ["a"]
    assert status["currentHealthy"] == 0
    await cluster.sleep(118)
    assert (await harness.status())["currentHealthy"] == 0
    await cluster.sleep(3)
    status = await harness.status()
    assert (status["currentHealthy"], status.get("disruptedPods")) == (1, None)
    text = "Pod was expected by PDB default/default to be deleted but it wasn't"
    assert await cluster.events("a") == [("Warning", "NotDeleted", text)]


@bare
async def test_two_budgets_for_one_pod_are_reported(cluster: VirtualCluster) -> None:
    for name in ("budget", "another"):
        budget = a_budget(minAvailable=0)
        budget["metadata"]["name"] = name
        await cluster.client.create(budget)
    await cluster.sleep(0.5)
    await cluster.client.create(a_pod("a"))
    await cluster.sleep(0.5)
    ((kind, reason, text),) = await cluster.events("a")
    assert (kind, reason) == ("Warning", "MultiplePodDisruptionBudgets")
    assert text.startswith('Pod "default"/"a" matches multiple PodDisruptionBudgets.  Chose "')


@bare
async def test_a_stale_disruption_condition_is_cleared(cluster: VirtualCluster) -> None:
    harness = Harness(cluster)
    await cluster.client.create(a_pod("a"))
    (pod,) = await harness.run_all()
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "m",
        "lastTransitionTime": format_time(cluster.clock.now()),
    }
    pod = await cluster.client.get(PODS, "a", "default")
    conditions = [*pod["status"]["conditions"], target]
    await cluster.client.patch(PODS, "a", {"status": {"conditions": conditions}}, "default", subresource="status")
    await cluster.sleep(115)
    assert (await cluster.client.get(PODS, "a", "default"))["status"]["conditions"][-1]["status"] == "True"
    await cluster.sleep(7)
    cleared = (await cluster.client.get(PODS, "a", "default"))["status"]["conditions"][-1]
    assert (cleared["type"], cleared["status"]) == ("DisruptionTarget", "False")
    assert "reason" not in cleared and "message" not in cleared
    assert cleared["lastTransitionTime"] > target["lastTransitionTime"]
