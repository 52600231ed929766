"""Scheduling decisions and their results at a real API server."""

from __future__ import annotations

from scheduler_objects import HOSTNAME, NODES, PODS, a_node, a_pod, add_node, alone, condition, node_of

from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster

STORES = ("memory", "lagging")
UNHELPFUL = "Preemption is not helpful for scheduling"


@alone
async def test_bound_pods_have_events(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a"))
    await cluster.client.create(a_pod("p"))
    await cluster.client.create(a_pod("foreign", schedulerName="another"))
    await cluster.instant()
    assert await node_of(cluster, "p") == "a"
    assert await node_of(cluster, "foreign") == ""
    (event,) = (await cluster.client.list(("events.k8s.io/v1", "Event"), "default")).items
    assert (event["type"], event["reason"], event["note"]) == (
        "Normal",
        "Scheduled",
        "Successfully assigned default/p to a",
    )
    assert (event["action"], event["reportingController"]) == ("Binding", "default-scheduler")
    assert event["regarding"]["kind"] == "Pod"


@alone
async def test_gated_pods_wait_for_their_gates(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a"))
    gates = [{"name": "example.com/one"}, {"name": "example.com/two"}]
    await cluster.client.create(a_pod("gated", schedulingGates=gates))
    await cluster.sleep(400)
    assert await node_of(cluster, "gated") == ""
    assert (await condition(cluster, "gated"))["reason"] == "SchedulingGated"
    assert await cluster.events("gated") == []
    await cluster.client.patch(PODS, "gated", {"spec": {"schedulingGates": gates[:1]}}, "default")
    await cluster.instant()
    assert await node_of(cluster, "gated") == ""
    await cluster.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, "default")
    await cluster.instant()
    assert await node_of(cluster, "gated") == "a"


@alone
async def test_without_nodes(cluster: VirtualCluster) -> None:
    await cluster.client.create(a_pod("p"))
    await cluster.instant()
    found = await condition(cluster, "p")
    assert (found["status"], found["reason"]) == ("False", "Unschedulable")
    assert found["message"] == "no nodes available to schedule pods"
    assert found["observedGeneration"] == 1
    assert await cluster.events("p") == [("Warning", "FailedScheduling", "no nodes available to schedule pods")]
    await cluster.sleep(60)
    await add_node(cluster, a_node("a"))
    await cluster.until(lambda: _is_bound(cluster, "p"), within=11)


async def _is_bound(cluster: VirtualCluster, name: str) -> bool:
    return bool(await node_of(cluster, name))


@alone
async def test_the_reasons_of_all_nodes_are_reported(cluster: VirtualCluster) -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    await add_node(cluster, a_node("small", cpu="1", memory="1Gi"))
    await add_node(cluster, a_node("tainted", taints=[taint]))
    await add_node(cluster, a_node("tainted-too", taints=[{**taint, "effect": "NoExecute"}]))
    await add_node(cluster, a_node("cordoned", unschedulable=True))
    await add_node(cluster, a_node("full", pods=0))
    await cluster.client.create(a_pod("p", cpu="2", memory="2Gi"))
    await cluster.instant()
    expected = (
        "0/5 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, "
        "1 node(s) were unschedulable, 2 node(s) had untolerated taint(s). preemption: 0/5 nodes are available: "
        f"1 No preemption victims found for incoming pod, 4 {UNHELPFUL}."
    )
    assert (await condition(cluster, "p"))["message"] == expected
    assert await cluster.events("p") == [("Warning", "FailedScheduling", expected)]


@alone
async def test_an_event_that_helps_requeues_a_pod_at_once(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a", pods=1))
    await cluster.client.create(a_pod("first"))
    await cluster.instant()
    await cluster.client.create(a_pod("second"))
    await cluster.instant()
    assert (await condition(cluster, "second"))["message"].startswith("0/1 nodes are available: 1 Too many pods.")
    await cluster.client.delete(PODS, "first", "default", grace_period=0)
    await cluster.instant()
    assert await node_of(cluster, "second") == "a"
    await cluster.client.create(a_pod("picky", nodeSelector={"disk": "ssd"}))
    await cluster.instant()
    await add_node(cluster, a_node("b"))  # does not help
    await cluster.sleep(2)
    assert await node_of(cluster, "picky") == ""
    await cluster.client.patch(NODES, "b", {"metadata": {"labels": {"disk": "ssd"}}})
    await cluster.instant()
    assert await node_of(cluster, "picky") == "b"


@alone
async def test_an_ended_pod_frees_its_resources(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a", pods=1))
    await cluster.client.create(a_pod("first", "a"))
    await cluster.client.create(a_pod("second"))
    await cluster.instant()
    assert await node_of(cluster, "second") == ""
    done = {"status": {"phase": "Succeeded"}}
    await cluster.client.patch(PODS, "first", done, "default", subresource="status")
    await cluster.instant()
    assert await node_of(cluster, "second") == "a"


@alone
async def test_a_terminating_pod_is_not_scheduled(cluster: VirtualCluster) -> None:
    pod = a_pod("p")
    pod["metadata"]["finalizers"] = ["example.com/hold"]
    await cluster.client.create(pod)
    await cluster.instant()
    await cluster.client.delete(PODS, "p", "default")
    await add_node(cluster, a_node("a"))
    await cluster.sleep(30)
    assert await node_of(cluster, "p") == ""
    assert ("Warning", "FailedScheduling", "skip schedule deleting pod: default/p") in await cluster.events("p")


@alone
async def test_many_pods_are_spread_over_nodes(cluster: VirtualCluster) -> None:
    for name in "abcd":
        await add_node(cluster, a_node(name))
    for number in range(40):
        await cluster.client.create(a_pod(f"p{number}", cpu="100m"))
    await cluster.instant()
    places = [pod["spec"].get("nodeName") for pod in await cluster.all(PODS)]
    assert sorted(places) == sorted("abcd" * 10)


@alone
async def test_a_restarted_scheduler_repeats_nothing(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a", cpu="1"))
    await cluster.client.create(a_pod("one", cpu="600m"))
    await cluster.instant()
    await cluster.kill("scheduler")
    await cluster.client.create(a_pod("two", cpu="600m"))
    await cluster.start("scheduler")
    await cluster.sleep(30)
    assert (await node_of(cluster, "one"), await node_of(cluster, "two")) == ("a", "")
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.instant()
    assert await node_of(cluster, "two") == "a"


@alone
async def test_a_daemon_pod_is_bound_to_its_node(cluster: VirtualCluster) -> None:
    for name in "abc":
        await add_node(cluster, a_node(name))

    def to(name: str) -> Obj:
        field = {"key": "metadata.name", "operator": "In", "values": [name]}
        term = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}

    await cluster.client.create(a_pod("there", affinity=to("b")))
    await cluster.client.create(a_pod("nowhere", affinity=to("z")))
    await cluster.instant()
    assert await node_of(cluster, "there") == "b"
    assert (await condition(cluster, "nowhere"))["message"] == (
        "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: "
        f"0/3 nodes are available: 3 {UNHELPFUL}."
    )


@alone
async def test_messages_of_anti_affinity_and_spread(cluster: VirtualCluster) -> None:
    await add_node(cluster, a_node("a"))
    selector = {"matchLabels": {"app": "x"}}
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": HOSTNAME}]
        }
    }
    await cluster.client.create(a_pod("one", labels={"app": "x"}, affinity=apart))
    await cluster.instant()
    await cluster.client.create(a_pod("two", labels={"app": "x"}, affinity=apart))
    await cluster.client.create(a_pod("three", labels={"app": "x"}))
    await cluster.instant()
    no_victims = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    assert (await condition(cluster, "two"))["message"] == (
        f"0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules. {no_victims}"
    )
    assert (await condition(cluster, "three"))["message"] == (
        f"0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules. {no_victims}"
    )
    await cluster.client.delete(PODS, "one", "default", grace_period=0)
    await cluster.sleep(1)
    assert sorted([await node_of(cluster, "two"), await node_of(cluster, "three")]) == ["", "a"]
