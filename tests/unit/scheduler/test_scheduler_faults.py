"""Failed writes, lost responses and crashes of the scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from kubelet_by_hand import Kubelet
from scheduler_objects import PODS, a_node, a_pod, add_node, alone, condition, node_of

from setpoint.client import Unreachable
from setpoint.cluster.virtual.link import Proceed, Write
from setpoint.meta.errors import InternalError
from setpoint.testing import VirtualCluster, run_virtual, virtual_cluster
from setpoint.testing.exploring import Exploration
from setpoint.view.fault_plan import Plan

STORES = ("memory", "lagging", "two-views")


@alone
async def test_a_rejected_binding_is_retried(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a", cpu="1"))
    refused = 0

    async def refuse(write: Write, proceed: Proceed) -> Any:
        nonlocal refused
        if write.subresource == "binding" and refused < 2:
            refused += 1
            raise InternalError("not now")
        return await proceed()

    cluster.links["scheduler"].write_interceptor = refuse
    await cluster.client.create(a_pod("p", cpu="800m"))
    await cluster.instant()
    found = await condition(cluster, "p")
    assert (found["reason"], found["message"]) == ("SchedulerError", "not now")
    assert await node_of(cluster, "p") == ""
    # The assumed resources are free in the meantime.
    await cluster.client.create(a_pod("quick", cpu="800m", priority=0))
    await cluster.sleep(1)
    assert await node_of(cluster, "quick") in ("", "a")
    await cluster.sleep(20)
    assert sorted([await node_of(cluster, "p"), await node_of(cluster, "quick")]) == ["", "a"]


@alone
async def test_a_lost_response_does_not_delay_a_bound_pod(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a"))

    async def lose(write: Write, proceed: Proceed) -> Any:
        answer = await proceed()
        if write.subresource == "binding":
            raise Unreachable("gone")
        return answer

    cluster.links["scheduler"].write_interceptor = lose
    await cluster.client.create(a_pod("p"))
    await cluster.sleep(30)
    assert await node_of(cluster, "p") == "a"
    assert (await condition(cluster, "p"))["status"] == "True"


async def overload(cluster: VirtualCluster) -> None:
    """Overload two nodes that hold four Pods, so that Pods of high priority preempt others."""
    await cluster.client.create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    )
    for name in "ab":
        await add_node(cluster, a_node(name, cpu="2"))
    for number in range(4):
        await cluster.client.create(a_pod(f"low-{number}", cpu="900m", terminationGracePeriodSeconds=0))
    await cluster.sleep(5)
    for number in range(3):
        await cluster.client.create(a_pod(f"high-{number}", cpu="900m", priorityClassName="high"))
    await cluster.sleep(60)
    # A scheduler that crashes while it deletes a Pod may leave it terminating: the rest is the work of the kubelet.
    kubelet = Kubelet(cluster.client, cluster.clock)
    for pod in await cluster.all(PODS):
        if "deletionTimestamp" in pod["metadata"]:
            await kubelet.bury(pod)
    await cluster.sleep(10)


async def nothing_is_overcommitted(cluster: VirtualCluster) -> None:
    pods = await cluster.all(PODS)
    places = [pod["spec"].get("nodeName") for pod in pods]
    assert all(places.count(name) <= 2 for name in "ab"), places
    assert all(pod["spec"].get("nodeName") for pod in pods if pod["metadata"]["name"].startswith("high"))


DYING = Exploration(
    None, overload, component="scheduler", check=nothing_is_overcommitted, controllers=["serviceaccount-controller"]
)


@pytest.mark.parametrize("nth", range(1, 15, 2))
def test_a_crash_after_any_write(nth: int) -> None:
    """The victims may differ after a crash, but all Pods that fit must be bound."""
    ending = DYING.under(Plan.parse(f"crash-after:{nth}"))
    assert not ending.failure
    assert not ending.open.faults


def test_without_faults() -> None:
    async def main() -> None:
        async with virtual_cluster(nodes=0, controllers=["serviceaccount-controller"]) as cluster:
            await overload(cluster)
            await nothing_is_overcommitted(cluster)
            assert len(await cluster.all(PODS)) == 4

    run_virtual(main)
