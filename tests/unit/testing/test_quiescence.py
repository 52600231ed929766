"""A cluster that does not come to rest: it is said who keeps it from that, and how."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from setpoint.client.resources import builtin
from setpoint.cluster.journal import Written
from setpoint.meta.times import format_time
from setpoint.sdk import Context, Controller, Kind, Object, Operator, Result
from setpoint.testing import VirtualCluster, virtual
from setpoint.testing.write_conflicts import diagnosis

Obj = dict[str, Any]
DEPLOYMENTS = builtin("deployments", "apps")


@dataclass
class Spec:
    cups: int = 4


Teapot = Kind("example.com/v1", "Teapot", spec=Spec)
Deployment = Kind("apps/v1", "Deployment")
BROWN = {"apiVersion": "example.com/v1", "kind": "Teapot", "spec": {},
         "metadata": {"name": "brown", "namespace": "default"}}  # fmt: skip


def operator(name: str, reconcile: Callable[..., Awaitable[Result | None]], kind: Any = Teapot) -> Operator:
    return Operator(name, Controller(kind, reconcile))


def web(replicas: int) -> Obj:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }  # fmt: skip


async def complaint(asked: Awaitable[None]) -> str:
    with pytest.raises(AssertionError) as error:
        await asked
    return str(error.value)


async def stamps(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
    ctx.set_status(lastSeen=format_time(ctx.clock.now()))


async def is_content(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
    ctx.condition("Ready", True, "Brewed")


@virtual(nodes=0)
async def test_a_hot_loop_that_leaves_no_time_to_pass(cluster: VirtualCluster) -> None:
    """It takes the real time, which is another one whenever it looks; virtual time stands still meanwhile."""

    async def stamp(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> None:
        ctx.set_status(lastSeen=datetime.now(UTC).isoformat())

    async with cluster.running(operator("tea", stamp)):
        await cluster.client.create(BROWN)
        said = await complaint(cluster.settle())
    assert said.startswith("livelock, virtual time cannot advance:\n")
    assert "tea writes teapots.example.com default/brown, " in said
    assert 'status.lastSeen from "' in said


@virtual(nodes=0)
async def test_a_loop_that_goes_on_writing(cluster: VirtualCluster) -> None:
    async def write(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        ctx.set_status(lastSeen=format_time(ctx.clock.now()))
        return Result(requeue_after=1)

    async with cluster.running(operator("tea", write)):
        await cluster.client.create(BROWN)
        said = await complaint(cluster.settle(within=20))
    first, second = said.splitlines()[:2]
    assert first == "the cluster did not settle within 20 s:"
    assert second.startswith("  operator tea writes teapots.example.com default/brown, 1")
    assert 'status.lastSeen from "2026-01-01T00:00:' in said


@virtual(nodes=0)
async def test_a_loop_that_writes_nothing(cluster: VirtualCluster) -> None:
    async def look(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        return Result(requeue_after=0.002)

    async with cluster.running(operator("tea", look)):
        await cluster.client.create(BROWN)
        said = await complaint(cluster.settle())
        expected = "endless reconciles although nothing is written:\n  tea (teapot-operator) reconciles default/brown, "
        assert expected in said


@virtual(nodes=0)
async def test_a_loop_that_writes_nothing_and_leaves_no_time_to_pass(cluster: VirtualCluster) -> None:
    async def look(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        return Result(requeue_after=0)

    async with cluster.running(operator("tea", look)):
        await cluster.client.create(BROWN)
        said = await complaint(cluster.sleep(1))
    assert "livelock, virtual time cannot advance:\n  tea (teapot-operator) reconciles default/brown, " in said


@virtual(nodes=0)
async def test_who_only_looks_now_and_then_is_at_rest(cluster: VirtualCluster) -> None:
    async def look(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result:
        ctx.condition("Ready", True, "Brewed")
        return Result(requeue_after=5)

    async with cluster.running(operator("tea", look)), cluster.running(operator("coffee", is_content)):
        await cluster.client.create(BROWN)
        await cluster.settle()
        await cluster.at_rest("10m")


@virtual(nodes=0)
async def test_who_writes_the_time_is_found_although_it_settles(cluster: VirtualCluster) -> None:
    async with cluster.running(operator("tea", stamps)):
        await cluster.client.create(BROWN)
        await cluster.settle()
        said = await complaint(cluster.at_rest())
    line = "operator tea writes teapots.example.com default/brown, once: status.lastSeen from "
    assert said.startswith(f"the cluster is not quiescent:\n  {line}")


def replicas(count: int) -> Callable[..., Awaitable[None]]:
    async def hold(ctx: Context[Any, Any], found: Object[Any, Any]) -> None:
        if found.raw["spec"]["replicas"] != count:
            await ctx.client.patch(DEPLOYMENTS, found.name, {"spec": {"replicas": count}}, found.namespace)

    return hold


@virtual(nodes=0, controllers=["deployment-controller"])
async def test_two_operators_fight_over_replicas(cluster: VirtualCluster) -> None:
    tea, coffee = operator("tea", replicas(2), Deployment), operator("coffee", replicas(3), Deployment)
    async with cluster.running(tea), cluster.running(coffee):
        await cluster.client.create(web(2))
        said = await complaint(cluster.settle())
    first = said.splitlines()[1]
    assert first.startswith("  fight over spec.replicas of deployments.apps default/web: ")
    assert "tea writes 2" in first and "coffee writes 3" in first


@virtual(nodes=1)
async def test_an_operator_fights_with_a_controller(cluster: VirtualCluster) -> None:
    """Slowly enough for time to pass."""

    async def paint(ctx: Context[Any, Any], found: Object[Any, Any]) -> Result:
        revision = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "mine"}}}
        await ctx.client.patch(DEPLOYMENTS, found.name, revision, found.namespace)
        return Result(requeue_after=1)

    first = Operator("tea", Controller(Deployment, paint, when=lambda old, new: old is None))
    async with cluster.running(first):
        await cluster.client.create(web(1))
        said = await complaint(cluster.settle(quiet=3, within=30))
    assert said.startswith("the cluster did not settle within 30 s:\n")
    assert "fight over metadata.annotations.deployment.kubernetes.io/revision of deployments.apps default/web" in said
    assert 'tea writes "mine"' in said and 'deployment-controller writes "1"' in said


@virtual(nodes=0)
async def test_a_slow_fight_is_found_at_rest(cluster: VirtualCluster) -> None:
    """The autoscaler looks every 15 seconds: between two of its looks all is quiet."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    autoscaler = {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minReplicas": 4, "maxReplicas": 9, "scaleTargetRef": target},
    }  # fmt: skip
    async with cluster.running(operator("tea", replicas(2), Deployment)):
        await cluster.client.create(web(2))
        await cluster.client.create(autoscaler)
        await cluster.settle()
        said = await complaint(cluster.at_rest("3m"))
    first = said.splitlines()[1]
    assert first.startswith("  fight over spec.replicas of deployments.apps default/web: ")
    assert "horizontal-pod-autoscaler writes 4" in first and "tea writes 2" in first


@virtual(nodes=1)
async def test_much_at_once_is_no_loop(cluster: VirtualCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.testing.virtual_time._MANY_ITERATIONS", 50)
    await cluster.client.create(web(30))
    await cluster.settle()
    await cluster.at_rest("10m")


@virtual(nodes=1)
async def test_nodes_are_no_heartbeat_where_others_write_them(cluster: VirtualCluster) -> None:
    await cluster.at_rest("20m")

    async def label(ctx: Context[Any, Any], node: Object[Any, Any]) -> Result:
        seen = format_time(ctx.clock.now()).replace(":", ".")
        await ctx.client.patch(("v1", "Node"), node.name, {"metadata": {"labels": {"seen": seen}}})
        return Result(requeue_after=60)

    async with cluster.running(operator("tea", label, Kind("v1", "Node", namespaced=False))):
        assert "tea writes nodes node-1" in await complaint(cluster.at_rest())


# -- the words --------------------------------------------------------------------------------------------------------


def written(who: str, before: bytes | None, now: bytes | None, key: str = "core/configmaps/default/x") -> Written:
    return Written(0.0, who, key, before, now)


def test_who_creates_what_another_deletes() -> None:
    there = b'{"metadata":{"name":"x"}}'
    said = diagnosis([written("a", None, there), written("b", there, None)] * 3)
    assert said == "  fight over configmaps default/x: a creates it, b deletes it; 5 times in turn"


def test_new_names_all_the_time_are_one_line() -> None:
    made = [written("a", None, b"{}", f"core/pods/default/x-{number}") for number in range(9)]
    assert diagnosis(made) == "  a creates pods default/x-8 and 8 more of these"


def test_items_of_lists_are_called_by_their_names() -> None:
    before = b'{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Up","status":"True"}]}}'
    now = before.replace(b"False", b"True")
    said = diagnosis([written("a", before, now)])
    assert said == '  a writes configmaps default/x, once: status.conditions[type=Ready].status from "False" to "True"'


def test_counting_up_together_is_no_fight() -> None:
    values = [b'{"data":{"n":%d}}' % number for number in range(9)]
    pairs = pairwise(values)
    said = diagnosis([written("ab"[at % 2], before, now) for at, (before, now) in enumerate(pairs)])
    assert said.splitlines()[0] == "  a writes configmaps default/x, 4 times: data.n from 6 to 7"


def test_there_is_an_end_to_the_list() -> None:
    made = [written(f"writer-{number}", b'{"a":1}', b'{"a":2}') for number in range(12)]
    assert diagnosis(made).splitlines()[-1] == "  and 4 more"


# -- operators that delete and recreate -------------------------------------------------------------------------------


def recreating(pause: float) -> Callable[..., Awaitable[Result | None]]:
    """A reconcile that deletes the Deployment and creates it again, with so many seconds in between."""

    async def recreate(ctx: Context[Any, Any], teapot: Object[Any, Any]) -> Result | None:
        if ctx.seen(Deployment, "web") is not None:
            await ctx.client.delete(DEPLOYMENTS, "web", teapot.namespace, propagation="Background")
        await ctx.clock.sleep(pause)
        await ctx.apply(web(2), prune=False)
        return Result(requeue_after=pause) if pause else None

    return recreate


@pytest.mark.parametrize("pause", [0.0, 0.3])
def test_an_operator_that_recreates_is_named_before_the_controllers_that_follow_it(pause: float) -> None:
    @virtual(nodes=1)
    async def run(cluster: VirtualCluster) -> None:
        made = Operator("website", Controller(Teapot, recreating(pause), owns=(Deployment,)))
        service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
        meta = {"name": "web", "namespace": "default"}
        await cluster.client.create({"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": service})
        async with cluster.running(made):
            await cluster.client.create(BROWN)
            said = await complaint(cluster.settle())
        first = said.splitlines()[1]
        assert first.startswith("  operator website deletes and recreates deployments.apps default/web, ")
        # What was done until it was found bounds the processor time that a failing test takes.
        assert cluster.embedded.journal.news < 2000

    run()


def test_recreations_come_before_what_follows_them() -> None:
    there = b'{"metadata":{"name":"x"}}'
    pods = [written("replicaset-controller", None, b"{}", f"core/pods/default/x-{number}") for number in range(90)]
    said = diagnosis([*pods, *[written("a", there, None), written("a", None, there)] * 4], {"a"})
    assert said.splitlines() == [
        "  operator a deletes and recreates configmaps default/x, 4 times",
        "  replicaset-controller creates pods default/x-89 and 89 more of these",
    ]
