"""Preemption of Pods with lower priority."""

from __future__ import annotations

from typing import Any

from scheduler_objects import PODS, a_node, a_pod, add_node, alone, condition, node_of

from setpoint.cluster.virtual.link import Proceed, Write
from setpoint.meta.errors import InternalError
from setpoint.testing import VirtualCluster

STORES = ("memory", "lagging")


async def priorities(cluster: VirtualCluster) -> None:
    for name, value, more in (("high", 1000, {}), ("middle", 500, {}), ("polite", 1000, {"preemptionPolicy": "Never"})):
        await cluster.client.create(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                **more,
            }
        )


async def nominated(cluster: VirtualCluster, name: str) -> str:
    return str((await cluster.client.get(PODS, name, "default"))["status"].get("nominatedNodeName") or "")


@alone
async def test_the_lower_priority_pod_is_evicted_and_the_node_nominated(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("a", cpu="1"))
    await cluster.client.create(a_pod("low", cpu="800m", terminationGracePeriodSeconds=30))
    await cluster.instant()
    await cluster.client.create(a_pod("important", cpu="500m", priorityClassName="high"))
    await cluster.instant()
    uid = (await cluster.client.get(PODS, "important", "default"))["metadata"]["uid"]
    said = (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, "
        "preempting 1 victims"
    )
    assert (await condition(cluster, "important"))["message"] == said
    assert await cluster.events("important") == [("Warning", "FailedScheduling", said)]
    assert await nominated(cluster, "important") == "a"
    victim = await cluster.client.get(PODS, "low", "default")
    assert "deletionTimestamp" in victim["metadata"]
    target = await condition(cluster, "low", "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    assert ("Normal", "Preempted", f"Preempted by pod {uid} on node a") in await cluster.events("low")
    assert await node_of(cluster, "important") == ""
    # A Pod of no higher priority does not use the freed resources.
    await cluster.client.create(a_pod("other", cpu="600m", priorityClassName="middle"))
    await cluster.instant()
    await cluster.client.delete(PODS, "low", "default", grace_period=0)
    await cluster.instant()
    assert (await node_of(cluster, "important"), await node_of(cluster, "other")) == ("a", "")


@alone
async def test_fewest_and_least_important_victims(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("a", cpu="3"))
    await cluster.client.create(a_pod("one", cpu="1", priorityClassName="middle"))
    await cluster.client.create(a_pod("two", cpu="1"))
    await cluster.client.create(a_pod("three", cpu="1", priorityClassName="middle"))
    await cluster.instant()
    await cluster.client.create(a_pod("important", cpu="1", priorityClassName="high"))
    await cluster.sleep(40)
    leaving = [pod["metadata"]["name"] for pod in await cluster.all(PODS) if "deletionTimestamp" in pod["metadata"]]
    assert leaving == ["two"]


@alone
async def test_preemption_policy_never(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("a", cpu="1"))
    await cluster.client.create(a_pod("low", cpu="800m"))
    await cluster.instant()
    await cluster.client.create(a_pod("polite", cpu="500m", priorityClassName="polite"))
    await cluster.instant()
    assert (await condition(cluster, "polite"))["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
    )
    assert "deletionTimestamp" not in (await cluster.client.get(PODS, "low", "default"))["metadata"]


@alone
async def test_disruption_budgets_are_violated_last(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    for node, app in (("a", "guarded"), ("b", "free")):
        await add_node(cluster, a_node(node, cpu="1"))
        await cluster.client.create(a_pod(app, cpu="800m", labels={"app": app}))
        await cluster.instant()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    await cluster.client.create(budget)
    await cluster.client.create(a_pod("first", cpu="500m", priorityClassName="high"))
    await cluster.instant()
    assert await nominated(cluster, "first") == await node_of(cluster, "free")
    await cluster.client.delete(PODS, "free", "default", grace_period=0)
    await cluster.instant()
    # If there is no other victim, a disruption budget is violated.
    await cluster.client.create(a_pod("second", cpu="600m", priorityClassName="high"))
    await cluster.instant()
    assert await nominated(cluster, "second") == await node_of(cluster, "guarded")


@alone
async def test_no_eviction_where_it_does_not_help(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("small", cpu="1"))
    await add_node(cluster, a_node("busy", cpu="2", taints=[{"key": "k", "effect": "NoSchedule"}]))
    await cluster.client.create(a_pod("low", cpu="800m"))
    await cluster.instant()
    await cluster.client.create(a_pod("big", cpu="2", priorityClassName="high"))
    await cluster.instant()
    assert (await condition(cluster, "big"))["message"] == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: "
        "0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


@alone
async def test_a_nomination_ends_with_the_pod(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("a", cpu="1"))
    await cluster.client.create(a_pod("low", cpu="800m"))
    await cluster.instant()
    await cluster.client.create(a_pod("important", cpu="900m", priorityClassName="high"))
    await cluster.instant()
    await cluster.client.create(a_pod("patient", cpu="500m", priorityClassName="middle"))
    await cluster.instant()
    await cluster.client.delete(PODS, "important", "default", grace_period=0)
    await cluster.client.delete(PODS, "low", "default", grace_period=0)
    await cluster.sleep(2)
    assert await node_of(cluster, "patient") == "a"


@alone
async def test_a_restarted_scheduler_respects_nominations(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("a", cpu="1"))
    await cluster.client.create(a_pod("low", cpu="800m"))
    await cluster.instant()
    await cluster.client.create(a_pod("important", cpu="900m", priorityClassName="high"))
    await cluster.instant()
    await cluster.kill("scheduler")
    await cluster.client.delete(PODS, "low", "default", grace_period=0)
    await cluster.client.create(a_pod("a-later-one", cpu="900m", priorityClassName="middle"))
    await cluster.start("scheduler")
    await cluster.sleep(20)
    assert (await node_of(cluster, "important"), await node_of(cluster, "a-later-one")) == ("a", "")


@alone
async def test_preemption_resolves_anti_affinity(cluster: VirtualCluster) -> None:
    await priorities(cluster)
    await add_node(cluster, a_node("a"))
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await cluster.client.create(a_pod("low", labels={"app": "x"}))
    await cluster.client.create(a_pod("bystander", labels={"app": "y"}))
    await cluster.instant()
    await cluster.client.create(a_pod("important", affinity=apart, priorityClassName="high"))
    await cluster.instant()
    leaving = [pod["metadata"]["name"] for pod in await cluster.all(PODS) if "deletionTimestamp" in pod["metadata"]]
    assert leaving == ["low"]


@alone
async def test_evictions_count_before_the_cache_shows_them(cluster: VirtualCluster) -> None:
    """Two Pods are nominated for one node, and of their victims one is gone long before the other."""
    await priorities(cluster)
    for name in "ab":
        await add_node(cluster, a_node(name, cpu="2"))
    for number in range(4):
        await cluster.client.create(a_pod(f"low-{number}", cpu="900m", terminationGracePeriodSeconds=0))
    await cluster.sleep(5)
    deletions = 0

    async def delay(write: Write, proceed: Proceed) -> Any:
        nonlocal deletions
        if write.verb == "delete":
            deletions += 1
            await cluster.clock.sleep(deletions)
        return await proceed()

    cluster.links["scheduler"].write_interceptor = delay
    for number in range(3):
        await cluster.client.create(a_pod(f"high-{number}", cpu="900m", priorityClassName="high"))
    await cluster.sleep(60)
    assert deletions == 3
    assert [await node_of(cluster, f"high-{number}") != "" for number in range(3)] == [True] * 3


@alone
async def test_a_failed_eviction_is_made_up_for(cluster: VirtualCluster) -> None:
    """A Pod does not wait for a victim that stays."""
    await priorities(cluster)
    for name in "ab":
        await add_node(cluster, a_node(name, cpu="2"))
    for number in range(4):
        await cluster.client.create(a_pod(f"low-{number}", cpu="900m", terminationGracePeriodSeconds=0))
    await cluster.sleep(5)
    deletions = 0

    async def fail(write: Write, proceed: Proceed) -> Any:
        nonlocal deletions
        if write.verb == "delete":
            deletions += 1
            number = deletions
            await cluster.clock.sleep(number)
            if number == 3:
                raise InternalError("not now")
        return await proceed()

    cluster.links["scheduler"].write_interceptor = fail
    for number in range(3):
        await cluster.client.create(a_pod(f"high-{number}", cpu="900m", priorityClassName="high"))
    await cluster.sleep(60)
    assert deletions > 3
    assert [await node_of(cluster, f"high-{number}") != "" for number in range(3)] == [True] * 3
