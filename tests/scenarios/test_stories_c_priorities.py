"""Story C6: preemption, with every component running."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

PODS = builtin("pods")


def priority(name: str, value: int, policy: str = "PreemptLowerPriority") -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
    }


def pod(name: str, of: str, cpu: str) -> Obj:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"priorityClassName": of, "terminationGracePeriodSeconds": 20, "containers": [container]},
    }


async def running(cluster: VirtualCluster) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in await cluster.all(PODS)
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }


async def are(cluster: VirtualCluster, *names: str) -> bool:
    return await running(cluster) == set(names)


@virtual(nodes=1)
async def test_c6_a_pod_of_high_priority_preempts_one_of_the_lowest(cluster: VirtualCluster) -> None:
    for made in (priority("low", 10), priority("middle", 100), priority("high", 1000), priority("meek", 900, "Never")):
        await cluster.client.create(made)
    await cluster.client.create(pod("one", "low", "4"))
    await cluster.client.create(pod("two", "middle", "4"))
    await cluster.until(lambda: are(cluster, "one", "two"), within=10)

    await cluster.client.create(pod("patient", "meek", "4"))
    await cluster.sleep(30)
    assert await are(cluster, "one", "two"), "it waits for room, and takes nobody's"

    await cluster.client.create(pod("urgent", "high", "4"))
    await cluster.until(lambda: are(cluster, "two", "urgent"), within=40)
    found = await cluster.client.get(PODS, "urgent", "default")
    assert found["spec"]["priority"] == 1000
    told = await cluster.events("one")
    preempted = [message for _, reason, message in told if reason == "Preempted"]
    assert preempted == [f"Preempted by pod {found['metadata']['uid']} on node node-1"]
    waiting = await cluster.client.get(PODS, "patient", "default")
    assert waiting["status"]["phase"] == "Pending"
