"""DaemonSets through the API server, in virtual time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

STORES = ("memory", "lagging")
PODS, SETS, NODES = builtin("pods"), builtin("daemonsets", "apps"), builtin("nodes")
REVISIONS = builtin("controllerrevisions", "apps")
ALONE: dict[str, Any] = {
    "nodes": 0,
    "scheduler": False,
    "controllers": ("daemonset-controller", "serviceaccount-controller"),
}
"""Nobody but this controller: nodes are what the test says they are, and so is what becomes of a Pod."""


def agent(image: str = "one", rolling: Obj | None = None, **spec: Any) -> Obj:
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling} if rolling else None
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": template(image),
            **({"updateStrategy": strategy} if strategy else {}),
            **spec,
        },
    }


def template(image: str, **spec: Any) -> Obj:
    containers = [{"name": "c", "image": image}]
    return {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": containers, **spec}}


async def add_nodes(cluster: VirtualCluster, *names: str, labels: dict[str, str] | None = None) -> None:
    for name in names:
        meta = {"name": name, "labels": labels or {}}
        await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        # The admission control of a new node taints it until it is ready.
        await cluster.client.patch(NODES, name, {"spec": {"taints": None}})
    await cluster.instant()


def node_of(pod: Obj) -> str:
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = terms["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    assert (field["key"], field["operator"]) == ("metadata.name", "In")
    return str(field["values"][0])


async def by_node(cluster: VirtualCluster) -> dict[str, list[Obj]]:
    await cluster.instant()
    found: dict[str, list[Obj]] = {}
    for pod in await cluster.all(PODS, selector="app=agent"):
        found.setdefault(node_of(pod), []).append(pod)
    return {name: found[name] for name in sorted(found)}


async def images(cluster: VirtualCluster) -> dict[str, list[str]]:
    """Return the images of the Pods that are not being deleted, by node."""
    return {
        node: sorted(
            pod["spec"]["containers"][0]["image"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
        )
        for node, pods in (await by_node(cluster)).items()
    }


async def bind(cluster: VirtualCluster, *, ready: bool = True, phase: str = "Running", only: str = "") -> None:
    """Bind every Pod to its node and set its readiness."""
    stamp = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": stamp}]}
    for node, pods in (await by_node(cluster)).items():
        for pod in pods:
            name = pod["metadata"]["name"]
            if only and node != only:
                continue
            if not pod["spec"].get("nodeName"):
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": "default"}}
                binding["target"] = {"kind": "Node", "name": node}
                await cluster.client.create(
                    binding, resource=PODS, name=name, namespace="default", subresource="binding"
                )
            await cluster.client.patch(PODS, name, {"status": status}, "default", subresource="status")
    await cluster.instant()


async def finish_deletions(cluster: VirtualCluster) -> None:
    """Delete terminating Pods without grace, as nodes do."""
    for pod in await cluster.all(PODS):
        if "deletionTimestamp" in pod["metadata"]:
            await cluster.client.delete(PODS, pod["metadata"]["name"], "default", grace_period=0)
    await cluster.instant()


async def status(cluster: VirtualCluster) -> Obj:
    await cluster.instant()
    found: Obj = (await cluster.client.get(SETS, "agent", "default"))["status"]
    return found


@virtual(**ALONE)
async def test_every_node_gets_a_pod_also_one_that_joins_later(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a", "b")
    await cluster.client.create(agent())
    assert list(await by_node(cluster)) == ["a", "b"]
    await add_nodes(cluster, "c")
    pods = await by_node(cluster)
    assert {node: len(found) for node, found in pods.items()} == {"a": 1, "b": 1, "c": 1}
    (pod,) = pods["c"]
    (revision,) = await cluster.all(REVISIONS)
    assert revision["revision"] == 1
    assert pod["metadata"]["labels"] == {
        "app": "agent",
        "controller-revision-hash": revision["metadata"]["labels"]["controller-revision-hash"],
        "pod-template-generation": "1",
    }
    tolerated = {(each.get("key"), each.get("effect")) for each in pod["spec"]["tolerations"]}
    assert {key.rpartition("/")[2] for key, _ in tolerated} == {
        "not-ready",
        "unreachable",
        "disk-pressure",
        "memory-pressure",
        "pid-pressure",
        "unschedulable",
    }
    assert await status(cluster) == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberMisscheduled": 0,
        "numberReady": 0,
        "numberUnavailable": 3,
        "observedGeneration": 1,
        "updatedNumberScheduled": 3,
    }
    await bind(cluster)
    found = await status(cluster)
    assert (found["numberReady"], found["numberAvailable"]) == (3, 3)
    events = [reason for _, reason, _ in await cluster.events("agent")]
    assert events == ["SuccessfulCreate"] * 3


@virtual(**ALONE)
async def test_selector_affinity_and_taints_select_nodes(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "plain")
    await add_nodes(cluster, "fast", "cordoned", "tainted", labels={"disk": "ssd"})
    cordon = {
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            ],
        }
    }
    await cluster.client.patch(NODES, "cordoned", cordon)
    taint = {"key": "team", "value": "blue", "effect": "NoSchedule"}
    await cluster.client.patch(NODES, "tainted", {"spec": {"taints": [taint]}})
    await cluster.client.create(agent(template=template("one", nodeSelector={"disk": "ssd"})))
    assert list(await by_node(cluster)) == ["cordoned", "fast"]
    await cluster.client.patch(NODES, "plain", {"metadata": {"labels": {"disk": "ssd"}}})
    assert list(await by_node(cluster)) == ["cordoned", "fast", "plain"]
    await bind(cluster)
    # A taint that only keeps new Pods away leaves the old one where it is, but it is out of place.
    await cluster.client.patch(NODES, "fast", {"spec": {"taints": [taint]}})
    assert list(await by_node(cluster)) == ["cordoned", "fast", "plain"]
    await cluster.client.patch(NODES, "plain", {"metadata": {"labels": {"disk": None}}})
    await cluster.instant()
    await finish_deletions(cluster)
    assert list(await by_node(cluster)) == ["cordoned", "fast"]
    found = await status(cluster)
    assert (found["desiredNumberScheduled"], found["numberMisscheduled"]) == (1, 1)
    await cluster.client.patch(NODES, "fast", {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}})
    await cluster.instant()
    await finish_deletions(cluster)
    assert list(await by_node(cluster)) == ["cordoned"]


@virtual(**ALONE)
async def test_a_rolling_update_respects_max_unavailable(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a", "b", "c")
    await cluster.client.create(agent(rolling={"maxUnavailable": 2}))
    await bind(cluster)
    await cluster.client.patch(SETS, "agent", {"spec": {"template": template("two")}}, "default")
    assert sorted((await images(cluster)).values()) == [[], [], ["one"]]
    await finish_deletions(cluster)
    assert sorted((await images(cluster)).values()) == [["one"], ["two"], ["two"]]
    found = await status(cluster)
    assert (found["updatedNumberScheduled"], found["numberAvailable"]) == (2, 1)
    await bind(cluster)
    await finish_deletions(cluster)
    await bind(cluster)
    assert sorted((await images(cluster)).values()) == [["two"]] * 3
    found = await status(cluster)
    assert (found["updatedNumberScheduled"], found["numberAvailable"], found["observedGeneration"]) == (3, 3, 2)
    assert sorted(revision["revision"] for revision in await cluster.all(REVISIONS)) == [1, 2]


@virtual(**ALONE)
async def test_with_surge_the_new_pod_starts_before_the_old_one_is_deleted(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a", "b")
    await cluster.client.create(agent(rolling={"maxSurge": 1, "maxUnavailable": 0}))
    await bind(cluster)
    await cluster.client.patch(SETS, "agent", {"spec": {"template": template("two")}}, "default")
    assert sorted((await images(cluster)).values()) == [["one"], ["one", "two"]]
    await cluster.sleep(60)
    assert sorted((await images(cluster)).values()) == [["one"], ["one", "two"]], "it is not ready: nothing goes on"
    await bind(cluster)
    assert sorted((await images(cluster)).values()) == [["one", "two"], ["two"]]
    await bind(cluster)
    await finish_deletions(cluster)
    assert sorted((await images(cluster)).values()) == [["two"], ["two"]]


@virtual(**ALONE)
async def test_on_delete_waits_for_the_user_and_a_rollback_reuses_the_revision(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a")
    await cluster.client.create(agent(updateStrategy={"type": "OnDelete"}, revisionHistoryLimit=1))
    await bind(cluster)
    for image in ("two", "three"):
        await cluster.client.patch(SETS, "agent", {"spec": {"template": template(image)}}, "default")
        await cluster.instant()
    assert await images(cluster) == {"a": ["one"]}
    assert sorted(found["revision"] for found in await cluster.all(REVISIONS)) == [1, 3], "one is still in use"
    await cluster.client.patch(SETS, "agent", {"spec": {"template": template("one")}}, "default")
    await cluster.instant()
    assert sorted(found["revision"] for found in await cluster.all(REVISIONS)) == [3, 4]
    assert (await status(cluster))["updatedNumberScheduled"] == 1


@virtual(**ALONE)
async def test_failed_pods_are_recreated_with_backoff(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a")
    await cluster.client.create(agent())
    uids: list[str] = []
    moments: list[float] = []
    while len(moments) < 5:
        (pod,) = (await by_node(cluster))["a"]
        if pod["metadata"]["uid"] not in uids:
            uids.append(pod["metadata"]["uid"])
            moments.append(cluster.clock.monotonic())
            await bind(cluster, ready=False, phase="Failed")
        await finish_deletions(cluster)
        await cluster.sleep(0.1)
    gaps = [round(after - before) for before, after in pairwise(moments)]
    assert gaps[1:] == [1, 2, 4]
    events = [event for event in await cluster.events("agent") if event[1] == "FailedDaemonPod"]
    assert events[0][0] == "Warning"
    assert events[0][2].startswith("Found failed daemon pod default/agent-")
    assert events[0][2].endswith(" on node a, will try to kill it")


@virtual(**ALONE)
async def test_surplus_pods_and_pods_of_deleted_nodes_are_deleted(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a", "b")
    await cluster.client.create(agent())
    pods = await by_node(cluster)
    (first,) = pods["a"]
    spare = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "spare", "namespace": "default", "labels": first["metadata"]["labels"]},
        "spec": {"containers": [{"name": "c", "image": "one"}], "affinity": first["spec"]["affinity"]},
    }
    await cluster.sleep(2)
    await cluster.client.create(spare)
    await cluster.instant()
    await finish_deletions(cluster)
    assert [pod["metadata"]["name"] for pod in (await by_node(cluster))["a"]] == [first["metadata"]["name"]]
    await cluster.client.delete(NODES, "b")
    assert list(await by_node(cluster)) == ["a"]
    assert (await status(cluster))["desiredNumberScheduled"] == 1


@virtual(**ALONE)
async def test_a_deleted_revision_is_recreated(cluster: VirtualCluster) -> None:
    await add_nodes(cluster, "a")
    await cluster.client.create(agent())
    await cluster.instant()
    (before,) = await cluster.all(REVISIONS)
    await cluster.client.delete(REVISIONS, before["metadata"]["name"], "default")
    await cluster.instant()
    (after,) = await cluster.all(REVISIONS)
    assert after["metadata"]["name"] == before["metadata"]["name"]
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert len((await by_node(cluster))["a"]) == 1


@virtual(nodes=3)
async def test_a_set_runs_on_all_nodes(cluster: VirtualCluster) -> None:
    await cluster.client.create(agent())

    async def available(image: str) -> bool:
        found = await status(cluster)
        return found.get("numberAvailable") == found.get("updatedNumberScheduled") == 3 and {
            pod["spec"]["containers"][0]["image"] for pod in await cluster.all(PODS)
        } == {image}

    await cluster.until(lambda: available("one"))
    assert {pod["spec"]["nodeName"] for pod in await cluster.all(PODS)} == {"node-1", "node-2", "node-3"}
    await cluster.client.patch(SETS, "agent", {"spec": {"template": template("two")}}, "default")
    await cluster.until(lambda: available("two"), within=300)
