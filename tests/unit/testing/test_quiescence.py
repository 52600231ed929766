"""Clusters that do not become quiescent: the report names the writers and their writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.cluster.write_log import LoggedWrite
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.testing import VirtualCluster, virtual
from setpoint.testing.quiescence import diagnosis

DEPLOYMENTS = builtin("deployments", "apps")


@dataclass
class Spec:
    cups: int = 4


Teapot = Kind("example.com/v1", "Teapot", spec=Spec)
Deployment = Kind("apps/v1", "Deployment")
BROWN = {
    "apiVersion": "example.com/v1",
    "kind": "Teapot",
    "spec": {},
    "metadata": {"name": "brown", "namespace": "default"},
}


def operator(name: str, reconcile: Callable[..., Awaitable[Result | None]], kind: Any = Teapot) -> Operator:
    return Operator(name, Controller(kind, reconcile))


def web(replicas: int) -> Obj:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


async def report(operation: Awaitable[None]) -> str:
    with pytest.raises(AssertionError) as error:
        await operation
    return str(error.value)


async def stamps(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
    ctx.set_status(lastSeen=format_time(ctx.clock.now()))


async def do_nothing(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
    ctx.condition("Ready", True, "Brewed")


@virtual(nodes=0)
async def test_a_livelock_of_writes_is_found(cluster: VirtualCluster) -> None:
    """The operator writes the real time, which always differs, while virtual time cannot advance."""

    async def stamp(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
        ctx.set_status(lastSeen=datetime.now(UTC).isoformat())

    async with cluster.running(operator("tea", stamp)):
        await cluster.client.create(BROWN)
        message = await report(cluster.settle())
    assert message.startswith("livelock, virtual time cannot advance:\n")
    assert "tea writes teapots.example.com default/brown, " in message
    assert 'status.lastSeen from "' in message


@virtual(nodes=0)
async def test_an_endless_loop_of_writes_is_found(cluster: VirtualCluster) -> None:
    async def write(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        ctx.set_status(lastSeen=format_time(ctx.clock.now()))
        return Result(requeue_after=1)

    async with cluster.running(operator("tea", write)):
        await cluster.client.create(BROWN)
        message = await report(cluster.settle(quiet=1.5, within=20))
    first, second = message.splitlines()[:2]
    assert first == "the cluster did not settle within 20 s:"
    assert second.startswith("  operator tea writes teapots.example.com default/brown, 1")
    assert 'status.lastSeen from "2026-01-01T00:00:' in message


@virtual(nodes=0)
async def test_an_endless_loop_of_reconciles_is_found(cluster: VirtualCluster) -> None:
    async def look(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        return Result(requeue_after=0.002)

    async with cluster.running(operator("tea", look)):
        await cluster.client.create(BROWN)
        message = await report(cluster.settle())
        expected = "endless reconciles although nothing is written:\n  tea (teapot-operator) reconciles default/brown, "
        assert expected in message


@virtual(nodes=0)
async def test_a_livelock_of_reconciles_is_found(cluster: VirtualCluster) -> None:
    async def look(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        return Result(requeue_after=0)

    async with cluster.running(operator("tea", look)):
        await cluster.client.create(BROWN)
        message = await report(cluster.sleep(1))
    assert "livelock, virtual time cannot advance:\n  tea (teapot-operator) reconciles default/brown, " in message


@virtual(nodes=0)
async def test_periodic_reconciles_without_writes_are_quiescent(cluster: VirtualCluster) -> None:
    async def look(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        ctx.condition("Ready", True, "Brewed")
        return Result(requeue_after=5)

    async with cluster.running(operator("tea", look)), cluster.running(operator("coffee", do_nothing)):
        await cluster.client.create(BROWN)
        await cluster.settle()
        await cluster.at_rest("10m")


@virtual(nodes=0)
async def test_periodic_writes_are_found_by_at_rest(cluster: VirtualCluster) -> None:
    async with cluster.running(operator("tea", stamps)):
        await cluster.client.create(BROWN)
        await cluster.settle()
        message = await report(cluster.at_rest())
    line = "operator tea writes teapots.example.com default/brown, once: status.lastSeen from "
    assert message.startswith(f"the cluster is not quiescent:\n  {line}")


def replicas(count: int) -> Callable[..., Awaitable[None]]:
    async def hold(ctx: Context[Any, Any], found: Object[Any, Any]) -> None:
        if found.raw["spec"]["replicas"] != count:
            await ctx.client.patch(DEPLOYMENTS, found.name, {"spec": {"replicas": count}}, found.namespace)

    return hold


@virtual(nodes=0, controllers=["deployment-controller"])
async def test_a_conflict_of_two_operators_is_found(cluster: VirtualCluster) -> None:
    tea, coffee = operator("tea", replicas(2), Deployment), operator("coffee", replicas(3), Deployment)
    async with cluster.running(tea), cluster.running(coffee):
        await cluster.client.create(web(2))
        message = await report(cluster.settle())
    first = message.splitlines()[1]
    assert first.startswith("  fight over spec.replicas of deployments.apps default/web: ")
    assert "tea writes 2" in first and "coffee writes 3" in first


@virtual(nodes=1)
async def test_a_conflict_with_a_controller_is_found(cluster: VirtualCluster) -> None:
    """The conflict is slow enough for virtual time to advance."""

    async def paint(ctx: Context[Any, Any], found: Object[Any, Any]) -> Result:
        revision = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "mine"}}}
        await ctx.client.patch(DEPLOYMENTS, found.name, revision, found.namespace)
        return Result(requeue_after=1)

    first = Operator("tea", Controller(Deployment, paint, when=lambda old, new: old is None))
    async with cluster.running(first):
        await cluster.client.create(web(1))
        message = await report(cluster.settle(quiet=3, within=30))
    assert message.startswith("the cluster did not settle within 30 s:\n")
    assert (
        "fight over metadata.annotations.deployment.kubernetes.io/revision of deployments.apps default/web" in message
    )
    assert 'tea writes "mine"' in message and 'deployment-controller writes "1"' in message


@virtual(nodes=0)
async def test_a_slow_conflict_is_found_by_at_rest(cluster: VirtualCluster) -> None:
    """The autoscaler runs every 15 seconds, and nothing happens in between."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minReplicas": 4, "maxReplicas": 9, "scaleTargetRef": target},
    }
    async with cluster.running(operator("tea", replicas(2), Deployment)):
        await cluster.client.create(web(2))
        await cluster.client.create(autoscaler)
        await cluster.settle()
        message = await report(cluster.at_rest("3m"))
    first = message.splitlines()[1]
    assert first.startswith("  fight over spec.replicas of deployments.apps default/web: ")
    assert "horizontal-pod-autoscaler writes 4" in first and "tea writes 2" in first


@virtual(nodes=1)
async def test_a_burst_of_writes_is_no_loop(cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.cluster.virtual.time._MANY_ITERATIONS", 50)
    await cluster.client.create(web(30))
    await cluster.settle()
    await cluster.at_rest("10m")


@virtual(nodes=1)
async def test_writes_to_nodes_by_others_are_no_heartbeats(cluster: VirtualCluster) -> None:
    await cluster.at_rest("20m")

    async def label(ctx: Context[Any, Any], node: Object[Any, Any]) -> Result:
        seen = format_time(ctx.clock.now()).replace(":", ".")
        await ctx.client.patch(("v1", "Node"), node.name, {"metadata": {"labels": {"seen": seen}}})
        return Result(requeue_after=60)

    async with cluster.running(operator("tea", label, Kind("v1", "Node", namespaced=False))):
        assert "tea writes nodes node-1" in await report(cluster.at_rest())


# -- the report --------------------------------------------------------------------------------------------------------


def written(who: str, before: bytes | None, now: bytes | None, key: str = "core/configmaps/default/x") -> LoggedWrite:
    return LoggedWrite(0.0, who, key, before, now)


def test_creation_and_deletion_by_two_writers_is_a_conflict() -> None:
    there = b'{"metadata":{"name":"x"}}'
    message = diagnosis([written("a", None, there), written("b", there, None)] * 3)
    assert message == "  fight over configmaps default/x: a creates it, b deletes it; 5 times in turn"


def test_writes_of_new_names_are_summarized() -> None:
    made = [written("a", None, b"{}", f"core/pods/default/x-{number}") for number in range(9)]
    assert diagnosis(made) == "  a creates pods default/x-8 and 8 more of these"


def test_list_items_are_identified_by_name() -> None:
    before = b'{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Up","status":"True"}]}}'
    now = before.replace(b"False", b"True")
    message = diagnosis([written("a", before, now)])
    assert (
        message == '  a writes configmaps default/x, once: status.conditions[type=Ready].status from "False" to "True"'
    )


def test_two_writers_of_a_counter_are_no_conflict() -> None:
    values = [b'{"data":{"n":%d}}' % number for number in range(9)]
    pairs = pairwise(values)
    message = diagnosis([written("ab"[at % 2], before, now) for at, (before, now) in enumerate(pairs)])
    assert message.splitlines()[0] == "  a writes configmaps default/x, 4 times: data.n from 6 to 7"


def test_the_report_is_bounded() -> None:
    made = [written(f"writer-{number}", b'{"a":1}', b'{"a":2}') for number in range(12)]
    assert diagnosis(made).splitlines()[-1] == "  and 4 more"


# -- operators that delete and recreate -------------------------------------------------------------------------------


def recreating(pause: float) -> Callable[..., Awaitable[Result | None]]:
    """Return a reconcile that deletes the Deployment and creates it again after some seconds."""

    async def recreate(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result | None:
        if ctx.seen(Deployment, "web") is not None:
            await ctx.client.delete(DEPLOYMENTS, "web", teapot.namespace, propagation="Background")
        await ctx.clock.sleep(pause)
        await ctx.apply(web(2), prune=False)
        return Result(requeue_after=pause) if pause else None

    return recreate


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_an_operator_that_recreates_comes_before_the_controllers(pause: float) -> None:
    @virtual(nodes=1)
    async def run(cluster: VirtualCluster) -> None:
        made = Operator("website", Controller(Teapot, recreating(pause), owns=(Deployment,)))
        service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        meta = {"name": "web", "namespace": "default"}
        await cluster.client.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
        async with cluster.running(made):
            await cluster.client.create(BROWN)
            message = await report(cluster.settle())
        first = message.splitlines()[1]
        assert first.startswith("  operator website deletes and recreates deployments.apps default/web, ")
        # The number of writes until detection bounds the CPU time of a failing test.
        assert cluster.embedded.write_log.change_count < 2000

    run()


def test_recreations_come_before_their_consequences() -> None:
    there = b'{"metadata":{"name":"x"}}'
    pods = [written("replicaset-controller", None, b"{}", f"core/pods/default/x-{number}") for number in range(90)]
    message = diagnosis([*pods, *[written("a", there, None), written("a", None, there)] * 4], {"a"})
    assert message.splitlines() == [
        "  operator a deletes and recreates configmaps default/x, 4 times",
        "  replicaset-controller creates pods default/x-89 and 89 more of these",
    ]
