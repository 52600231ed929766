"""Decisions, and what becomes of them at a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from stopped_clock import settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.cluster.system import RandomIds
from setpoint.reconcile import Manager
from setpoint.scheduler.cycle import Unschedulable, choose
from setpoint.scheduler.scheduler import add_scheduler
from setpoint.scheduler.snapshot import Snapshot

Obj = dict[str, Any]
PODS, NODES, EVENTS = builtin("pods"), builtin("nodes"), builtin("events")


def a_node(name: str, *, pods: int = 110, **spec: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"pods": str(pods)}, "capacity": {"pods": str(pods)}},
    }


def a_pod(name: str, node: str = "", **spec: Any) -> Obj:
    spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def snapshot(*nodes: Obj, pods: tuple[Obj, ...] = ()) -> Snapshot:
    made = Snapshot()
    for node in nodes:
        made.node_changed(None, node)
    for pod in pods:
        made.pod_changed(None, pod)
    return made


def test_the_emptiest_node_that_can_take_it() -> None:
    found = snapshot(a_node("a"), a_node("b"), a_node("c", unschedulable=True), pods=(a_pod("p", "a"),))
    assert choose(a_pod("new"), found.nodes()) == "b"


def test_what_was_decided_counts_before_it_is_seen() -> None:
    found = snapshot(a_node("a"), a_node("b"))
    places = []
    for number in range(4):
        pod = a_pod(f"p{number}")
        places.append(choose(pod, found.nodes()))
        found.place(pod, places[-1])
    assert sorted(places) == ["a", "a", "b", "b"]
    found.pod_changed(None, a_pod("p0", places[0]))
    assert sum(len(info.pods) for info in found.nodes()) == 4


def test_why_not_is_said_for_how_many_nodes() -> None:
    taint = {"key": "k", "effect": "NoSchedule"}
    found = snapshot(
        a_node("a", unschedulable=True), a_node("b", taints=[taint]), a_node("c", taints=[taint]), a_node("d", pods=0)
    )
    with pytest.raises(Unschedulable) as caught:
        choose(a_pod("new"), found.nodes())
    assert str(caught.value) == (
        "0/4 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s)."
    )
    with pytest.raises(Unschedulable, match="no nodes available to schedule pods"):
        choose(a_pod("new"), [])


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_tolerations(toleration: Obj, fits: bool) -> None:
    found = snapshot(a_node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    pod = a_pod("new", tolerations=[toleration])
    if fits:
        assert choose(pod, found.nodes()) == "a"
    else:
        with pytest.raises(Unschedulable):
            choose(pod, found.nodes())


def test_a_pod_that_has_ended_makes_room() -> None:
    found = snapshot(a_node("a", pods=1), pods=(a_pod("p", "a"),))
    with pytest.raises(Unschedulable):
        choose(a_pod("new"), found.nodes())
    assert found.pod_changed(a_pod("p", "a"), {**a_pod("p", "a"), "status": {"phase": "Succeeded"}})
    assert choose(a_pod("new"), found.nodes()) == "a"


@asynccontextmanager
async def scheduling(server: Any) -> AsyncIterator[Client]:
    client: Client = server.client
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}}
    await client.create(account)
    manager = Manager(client, server.clock, RandomIds(1))
    add_scheduler(manager)
    task = asyncio.ensure_future(manager.run())
    await manager.ready.wait()
    yield client
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def add_node(client: Client, name: str) -> None:
    await client.create(a_node(name))
    await client.patch(NODES, name, {"spec": {"taints": None}})  # as soon as it is found to be ready


async def test_pods_are_bound_and_that_is_told(local_server: Any) -> None:
    async with scheduling(local_server) as client:
        await add_node(client, "a")
        await client.create(a_pod("p"))
        await client.create(a_pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
        await client.create(a_pod("foreign", schedulerName="another"))
        await settle()
        assert (await client.get(PODS, "p", "default"))["spec"]["nodeName"] == "a"
        for name in ("gated", "foreign"):
            assert "nodeName" not in (await client.get(PODS, name, "default"))["spec"]
        (event,) = (await client.list(EVENTS, "default")).items
        assert (event["reason"], event["message"]) == ("Scheduled", "Successfully assigned default/p to a")
        await client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, "default")
        await settle()
        assert (await client.get(PODS, "gated", "default"))["spec"]["nodeName"] == "a"


async def test_a_pod_that_fits_nowhere_says_why_and_goes_as_soon_as_it_can(local_server: Any) -> None:
    async with scheduling(local_server) as client:
        await client.create(a_pod("p"))
        await settle()
        pod = await client.get(PODS, "p", "default")
        condition = next(found for found in pod["status"]["conditions"] if found["type"] == "PodScheduled")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == "no nodes available to schedule pods"
        (event,) = (await client.list(EVENTS, "default")).items
        assert (event["type"], event["reason"], event["message"]) == (
            "Warning", "FailedScheduling", "no nodes available to schedule pods",
        )  # fmt: skip
        await add_node(client, "a")
        await local_server.clock.advance(1)
        await local_server.clock.advance(2)
        assert (await client.get(PODS, "p", "default"))["spec"]["nodeName"] == "a"


async def test_a_pod_that_waits_for_room_gets_it_when_another_goes(local_server: Any) -> None:
    async with scheduling(local_server) as client:
        await client.create(a_node("a", pods=1))
        await client.patch(NODES, "a", {"spec": {"taints": None}})
        await client.create(a_pod("first"))
        await settle()
        await client.create(a_pod("second"))
        await settle()
        (warning,) = [event for event in (await client.list(EVENTS, "default")).items if event["type"] == "Warning"]
        assert warning["message"] == "0/1 nodes are available: 1 Too many pods."
        await client.delete(PODS, "first", "default", grace_period=0)
        await local_server.clock.advance(1)
        assert (await client.get(PODS, "second", "default"))["spec"]["nodeName"] == "a"
