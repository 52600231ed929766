"""The resource usage of nodes of other processes, from their kubelets' Summary API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from setpoint.apiserver.metrics_api import PodSample, ResourceUsage
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.tasks import run_all, within
from setpoint.wire.message import Peer, Request, Response, StreamResponse

log = logging.getLogger("setpoint.cluster")

_PATH = "/stats/summary"
_TIMEOUT = 5.0
_MAX_SIZE = 16 * 1024 * 1024
_CONCURRENT = 16
_WINDOW = 10.0
"""Seconds over which kubelets measure."""

Usage = tuple[dict[str, ResourceUsage], dict[str, PodSample]]
"""The usage of nodes by name, and of Pods by uid."""


class KubeletUsage:
    """Asks the kubelets of all ready nodes that do not run in this process."""

    def __init__(self, routes: NodeRoutes, nodes: Callable[[], Iterable[Obj]], clock: Clock) -> None:
        """`nodes` returns the current Node objects."""
        self._routes = routes
        self._nodes = nodes
        self._clock = clock

    async def sample(self) -> Usage:
        """Return the usage of the nodes that answer in time."""
        found: Usage = ({}, {})
        if self._routes.remote is None:
            return found
        remote = [node for node in self._nodes() if _is_ready(node) and not self._is_in_process(node)]
        slots = asyncio.Semaphore(_CONCURRENT)
        for nodes, pods in await run_all(*(self._ask(node, slots) for node in remote)):
            found[0].update(nodes)
            found[1].update(pods)
        return found

    def _is_in_process(self, node: Obj) -> bool:
        return self._routes.in_process(node["metadata"]["name"]) is not None

    async def _ask(self, node: Obj, slots: asyncio.Semaphore) -> Usage:
        name = node["metadata"]["name"]
        async with slots:
            try:
                body = await within(self._clock, _TIMEOUT, self._summary(node))
                return _parsed(name, orjson.loads(body))
            except (ApiError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                log.info("no usage of node %s: %s", name, error)
                return {}, {}

    async def _summary(self, node: Obj) -> bytes:
        answer = await self._routes.request_node(node, Request("GET", _PATH, "", {}, b"", Peer()))
        if isinstance(answer, StreamResponse):
            body = _Body()
            await answer.run(body)
            return bytes(body.data)
        if isinstance(answer, Response) and answer.status == 200:
            return answer.whole_body
        raise ValueError(f"the kubelet answered {answer.status if isinstance(answer, Response) else 101}")


class _Body:
    """A StreamWriter that collects a body."""

    buffered = 0

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data
        if len(self.data) > _MAX_SIZE:
            raise ValueError("the answer is too long")

    def write_chunks(self, chunks: bytes) -> None:
        raise ValueError("the answer is encoded")

    async def drained(self) -> None: ...

    async def closed(self) -> None:
        await asyncio.Event().wait()


def _is_ready(node: Obj) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _parsed(name: str, summary: Mapping[str, Any]) -> Usage:
    pods: dict[str, PodSample] = {}
    for pod in summary.get("pods") or ():
        containers = {
            each["name"]: usage for each in pod.get("containers") or () if (usage := _usage(each)) is not None
        }
        if containers:
            pods[pod["podRef"]["uid"]] = PodSample(_WINDOW, containers)
    total = _usage(summary["node"])
    return ({name: total} if total is not None else {}), pods


def _usage(stats: Mapping[str, Any]) -> ResourceUsage | None:
    """Return the usage; None if it was not measured yet."""
    cpu, memory = (stats.get("cpu") or {}).get("usageNanoCores"), (stats.get("memory") or {}).get("workingSetBytes")
    return ResourceUsage(int(cpu), int(memory)) if cpu is not None and memory is not None else None
