"""The usage of nodes of other processes, from their kubelets."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from setpoint.apiserver.metrics_api import PodSample, ResourceUsage
from setpoint.apiserver.node_connection import NodeRoutes, NodeUnreachable
from setpoint.cluster.in_process_nodes import FleetUsage
from setpoint.cluster.kubelet_usage import KubeletUsage
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock
from setpoint.wire.forwarding import stream_pieces
from setpoint.wire.message import HttpAnswer, Request, Response, StreamResponse


def usage(cpu: int | None, memory: int) -> Obj:
    return {"cpu": {} if cpu is None else {"usageNanoCores": cpu}, "memory": {"workingSetBytes": memory}}


def summary(uid: str) -> bytes:
    containers = [{"name": "c", **usage(5, 50)}, {"name": "new", **usage(None, 1)}]
    pods = [{"podRef": {"uid": uid}, "containers": containers}, {"podRef": {"uid": "x"}, "containers": containers[1:]}]
    return orjson.dumps({"node": usage(7, 70), "pods": pods})


class Remote:
    """The kubelets of some nodes, of which most have a problem."""

    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        name = node["metadata"]["name"]
        assert request.path == "/stats/summary" and name not in ("not-ready", "in-process")
        if name == "gone":
            raise NodeUnreachable.for_request(node, request, "no route to host")
        if name == "forbidden":
            return Response(403, b"Forbidden")
        if name == "silent":
            await asyncio.Event().wait()
        if name == "other":
            return Response(200, b'{"pods": [1]}')
        if name == "endless":
            return StreamResponse(200, [], stream_pieces(endless()))
        return StreamResponse(200, [], stream_pieces(halves(summary(f"uid-{name}"))))

    async def request_pod(self, *_: Any) -> HttpAnswer:
        raise NotImplementedError


async def halves(body: bytes) -> Any:
    yield body[:20]
    yield body[20:]


async def endless() -> Any:
    while True:
        yield b"x" * 1_000_000


class QuickClock:
    """A clock on which everything times out that needs more than some iterations of the event loop."""

    async def sleep(self, seconds: float) -> None:
        for _ in range(1000):
            await asyncio.sleep(0)


def a_node(name: str) -> Obj:
    ready = "False" if name == "not-ready" else "True"
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


async def test_usage_of_the_nodes_that_answer() -> None:
    names = ("a", "b", "gone", "forbidden", "silent", "other", "endless", "not-ready", "in-process")
    routes = NodeRoutes(Remote())
    routes.connect(lambda name: name == "in-process", Remote())  # type: ignore[arg-type]
    kubelets = KubeletUsage(routes, lambda: map(a_node, names), QuickClock())  # type: ignore[arg-type]
    nodes, pods = await kubelets.sample()
    assert nodes == {"a": ResourceUsage(7, 70), "b": ResourceUsage(7, 70)}
    sample = PodSample(10.0, {"c": ResourceUsage(5, 50)})
    assert pods == {"uid-a": sample, "uid-b": sample}
    assert await KubeletUsage(NodeRoutes(), lambda: map(a_node, names), QuickClock()).sample() == ({}, {})  # type: ignore[arg-type]


async def test_nodes_of_this_process_and_of_others_are_in_one_sample() -> None:
    kubelets = KubeletUsage(NodeRoutes(Remote()), lambda: [a_node("a")], SystemClock())
    sample = await FleetUsage(SystemClock(), kubelets).sample()
    assert list(sample.nodes) == ["a"] and list(sample.pods) == ["uid-a"]
