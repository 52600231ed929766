"""Every write of a control loop leads back, over the changes that triggered it, to an input of the cluster."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from setpoint.cli.watching.model import Authors
from setpoint.client.resources import builtin
from setpoint.meta.cause import WriteCause, decode
from setpoint.meta.objects import Obj
from setpoint.reconcile.loop_state import LoopStates
from setpoint.testing import VirtualCluster, run_virtual, virtual, virtual_cluster
from setpoint.view.why.facts import Ref

DEPLOYMENTS, NODES, PODS = builtin("deployments", "apps"), builtin("nodes"), builtin("pods")
ADMIN, SERVER = "kubernetes-admin", "system:apiserver"
CONTAINER: Obj = {"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "100m"}}}


def workload(kind: str, name: str, **spec: Any) -> Obj:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [CONTAINER]}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def pod(name: str, cpu: str = "100m", **annotations: str) -> Obj:
    container = {**CONTAINER, "resources": {"requests": {"cpu": cpu}}}
    noted = {f"simulate.setpoint.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    meta = {"name": name, "namespace": "default", "annotations": noted}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


SERVICE: Obj = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}
TICK: Obj = {
    "apiVersion": "batch/v1",
    "kind": "CronJob",
    "metadata": {"name": "tick", "namespace": "default"},
    "spec": {
        "schedule": "* * * * *",
        "jobTemplate": {
            "spec": {
                "ttlSecondsAfterFinished": 30,
                "template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}},
            }
        },
    },
}


class Recorder:
    """Reads the causes before they are compacted."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self.store = cluster.embedded.api.resources.store
        self.begin = self._last = self.store.revision
        self.causes: dict[int, WriteCause] = {}
        self.revisions: list[int] = []
        self.store.watch("", self.begin, lambda events, _: self.revisions.extend(each.revision for each in events))

    async def sleep(self, seconds: float) -> None:
        await self._cluster.sleep(seconds)
        self.causes |= {each.revision: decode(each.cause) for each in await self.store.causes(self._last)}
        self._last = self.store.revision


async def scenario(cluster: VirtualCluster, recorder: Recorder, random: Random) -> None:
    """Make inputs of many kinds in a random order, while components stop and start."""
    client = cluster.client
    objects = [
        workload("Deployment", "web", replicas=3),
        workload("StatefulSet", "db", replicas=2, serviceName="db"),
        workload("DaemonSet", "agent"),
        SERVICE,
        TICK,
        pod("huge", "500"),
        pod("crash", exit_code="3"),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "old"}},
    ]
    random.shuffle(objects)
    for obj in objects:
        await client.create(obj)
        await recorder.sleep(random.choice((0, 0.1, 3)))
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "old"}})

    async def update() -> None:
        spec = {"template": {"spec": {"containers": [{"name": "c", "image": f"nginx:{random.random()}"}]}}}
        await client.patch(DEPLOYMENTS, "web", {"spec": spec}, "default", kind="strategic")

    async def scale() -> None:
        await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": random.randint(0, 6)}}, "default")

    async def restart() -> None:
        name = random.choice(("controllers", "scheduler"))
        await (cluster.stop if random.random() < 0.5 else cluster.kill)(name)
        await scale()
        await recorder.sleep(20)
        await cluster.start(name)

    async def lose_node() -> None:
        await client.patch(NODES, "node-1", {"metadata": {"annotations": {"simulate.setpoint.dev/state": "stopped"}}})
        for _ in range(4):
            await recorder.sleep(100)

    steps = [update, scale, restart, lose_node]
    random.shuffle(steps)
    for step in steps:
        await step()
        await recorder.sleep(random.choice((1, 40)))
    await client.delete(builtin("namespaces"), "old")
    await client.delete(DEPLOYMENTS, "web", "default")
    await recorder.sleep(60)


def roots_of(revision: int, causes: dict[int, WriteCause], begin: int, known: dict[int, set[str]]) -> set[str]:
    """Return where the causes of a write begin: at an input, a trigger that is no revision, or before the history."""
    if revision in known:
        return known[revision]
    if revision <= begin:
        return {"earlier"}
    cause = causes[revision]
    claim = cause.claim
    if not claim.reconcile:
        assert cause.user in (ADMIN, SERVER), f"{revision}: a write of a loop without a run: {cause}"
        found = {cause.user}
    else:
        assert claim.triggers or claim.besides, f"{revision}: a run without a trigger: {cause}"
        assert all(0 < trigger < revision for trigger in claim.triggers), (
            f"{revision}: a trigger of the future: {cause}"
        )
        found = {claim.besides.partition(":")[0]} if claim.besides else set()
        for trigger in claim.triggers:
            found |= roots_of(trigger, causes, begin, known)
    assert found, f"{revision}: its causes begin nowhere"
    known[revision] = found
    return found


@virtual(nodes=1)
async def test_the_origin_of_an_event_is_a_person(cluster: VirtualCluster) -> None:
    """The log of `setpoint up` names who changed what led to an Event."""
    await cluster.client.create(workload("Deployment", "web", replicas=1))
    await cluster.settle()
    authors = Authors(cluster.client)
    found = {each["reason"]: int(each["metadata"]["resourceVersion"]) for each in await cluster.all(("v1", "Event"))}
    for reason in ("ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Started"):
        assert (await authors.origin(found[reason])).startswith(ADMIN), reason
    node = await cluster.client.get(NODES, "node-1")
    assert await authors.origin(int(node["metadata"]["resourceVersion"])) == "", "nobody changed the node"


@virtual(nodes=1)
async def test_triggers_of_scheduler_and_node_and_the_state_of_loops(cluster: VirtualCluster) -> None:
    client, api = cluster.client, cluster.embedded.api.resources

    async def cause_of(obj: Obj) -> WriteCause:
        revision = int(obj["metadata"]["resourceVersion"])
        (found,) = await api.store.causes(revision - 1, 1)
        assert found.revision == revision
        return decode(found.cause)

    # A Pod that waits is tried again after a change of the node: the binding names both.
    await client.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
    await cluster.sleep(1)
    waiting = await client.create(pod("waiting"))
    await cluster.sleep(1)
    assert isinstance(api.loops, LoopStates)
    attempt = api.loops.attempt("default/waiting")
    assert attempt is not None and attempt.attempts == 1 and attempt.message.startswith("0/1 nodes are available")
    assert attempt.verdicts == [("node-1", "node(s) were unschedulable")]
    freed = await client.patch(NODES, "node-1", {"spec": {"unschedulable": None}})
    async with client.watch(PODS, "default", resource_version=waiting["metadata"]["resourceVersion"]) as watch:
        async for _, placed in watch:
            if placed["spec"].get("nodeName"):
                break
    cause = await cause_of(placed)
    assert cause.verb == "bind" and cause.claim.reason == "node-1 is the only node, and it fits"
    created, untainted = cause.claim.triggers
    assert created == int(waiting["metadata"]["resourceVersion"])
    (taint,) = await api.store.causes(untainted - 1, 1)
    assert decode(taint.cause).claim.triggers == (int(freed["metadata"]["resourceVersion"]),)
    assert cause.claim.besides.startswith("event:NodeUpdate")
    # What the node observed is a trigger too.
    await cluster.sleep(10)
    exits = {"metadata": {"annotations": {"simulate.setpoint.dev/exit-code": "3"}}}
    annotated = await client.patch(PODS, "waiting", exits, "default")
    await cluster.sleep(0.5)
    revision = int(annotated["metadata"]["resourceVersion"])
    causes = [decode(each.cause) for each in await api.store.causes(revision)]
    reported = [each.claim for each in causes if each.verb == "patch/status" and each.claim.key == "default/waiting"]
    assert [(each.besides, each.reason, each.triggers) for each in reported] == [
        ("exit:3", "container c exited with code 3", (revision,)),
        ("restart", "container c was restarted", (revision,)),
    ]

    # A ReplicaSet whose Pods are refused: the refusals and the state of its key are known.
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": "default"}}
    await client.create({**quota, "spec": {"hard": {"pods": "0"}}})
    await cluster.sleep(5)
    await client.create(workload("ReplicaSet", "web", replicas=1))
    await cluster.sleep(30)
    names = api.loops.controllers()
    assert "replicaset-controller" in names and "kube-scheduler" in names
    (state,) = api.loops.keys(Ref("apps", "replicasets", "ReplicaSet", "default", "web"))
    assert state.controller == "replicaset-controller" and not state.working and state.position == 0
    assert state.failures > 3 and "exceeded quota: none" in state.error
    now = int(cluster.clock.now().timestamp() * 1000)
    assert now - 30_000 < state.last_run <= now < state.due
    refused = api.refusals.of("replicasets.apps", "default", "web")
    assert len(refused) == state.failures and all(each.resource == "pods" and each.status == 403 for each in refused)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_write_leads_back_to_an_input(seed: int) -> None:
    async def main() -> None:
        async with virtual_cluster(nodes=3) as cluster:
            recorder = Recorder(cluster)
            await scenario(cluster, recorder, Random(seed))
        begin, causes = recorder.begin, recorder.causes
        assert {*causes} == {*recorder.revisions}, "every revision has a cause"
        times = [cause.at for cause in causes.values()]
        assert times == sorted(times)
        known: dict[int, set[str]] = {}
        for revision in causes:  # ascending, so that the recursion is shallow
            roots_of(revision, causes, begin, known)
        controllers = {cause.claim.reconcile.rpartition("/")[0] for cause in causes.values()}
        assert {"deployment-controller", "replicaset-controller", "kube-scheduler", "node"} <= controllers
        made = [each for each in causes.values() if each.claim.reason.endswith(" wanted")]
        assert "create" in {each.verb for each in made}, "the ReplicaSet controller states its reasons"

    run_virtual(main)
