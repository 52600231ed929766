"""The nodes of the API server's own process: requests to kubelets and Pods without a socket, requests from Pods to the
API server, and the resource usage of Pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

from setpoint.apiserver.metrics_api import PodSample, ResourceUsage, Sample
from setpoint.apiserver.node_connection import (
    DelayedResponse,
    NodeRoutes,
    NodeUnreachable,
    kubelet_address,
)
from setpoint.cluster.kubelet_usage import KubeletUsage
from setpoint.meta.clock import Clock
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import NANO
from setpoint.node.fleet import Fleet
from setpoint.node.kubelet_api.simulated_usage import SYSTEM_USAGE
from setpoint.node.runtime.interface import Usage
from setpoint.node.runtime.network import TEXT, ConnectionFailure, PendingResponse, PodRequest, PodResponse
from setpoint.node.simulation_annotations import RUNNING
from setpoint.tasks import TaskRegistry
from setpoint.wire.message import (
    Handler,
    HttpAnswer,
    Peer,
    Request,
    Response,
)

if TYPE_CHECKING:
    from setpoint.node.kubelet_api.fleet_host import FleetHost

_RESOLUTION = 15.0
"""Seconds for which a sample is reused, as by a metrics server."""
_MIN_WINDOW = 10.0
"""Seconds that all containers of a Pod must have run before its usage is reported."""
_SYSTEM_USAGE = ResourceUsage(SYSTEM_USAGE.cpu_nano, SYSTEM_USAGE.memory_bytes)
_PODS_PER_SLICE = 500
"""Pods that are sampled before other tasks run."""
_MAX_POD_REQUESTS = 100
"""Concurrent requests of Pods to the API server; further ones time out."""


class FleetUsage:
    """A UsageSource that samples the connected fleets, and nodes of other processes, on request."""

    def __init__(self, clock: Clock, kubelets: KubeletUsage | None = None) -> None:
        self._clock = clock
        self._kubelets = kubelets
        self._fleets: list[Fleet] = []
        self._last: Sample | None = None
        self._sampled_at = 0.0
        self._sampling = asyncio.Lock()

    def connect(self, fleet: Fleet) -> None:
        self._fleets.append(fleet)

    def disconnect(self, fleet: Fleet) -> None:
        self._fleets.remove(fleet)
        self._last = None

    async def sample(self) -> Sample:
        async with self._sampling:
            if self._last is None or self._clock.monotonic() - self._sampled_at >= _RESOLUTION:
                self._sampled_at = self._clock.monotonic()
                self._last = await self._new_sample()
            return self._last

    async def _new_sample(self) -> Sample:
        now = self._clock.now()
        nodes: dict[str, ResourceUsage] = {}
        pods: dict[str, PodSample] = {}
        for fleet in self._fleets:
            nodes |= {name: _SYSTEM_USAGE for name, node in fleet.nodes.items() if node.state == RUNNING}
            for index, worker in enumerate(tuple(fleet.workers())):
                if index % _PODS_PER_SLICE == _PODS_PER_SLICE - 1:
                    await asyncio.sleep(0)
                node = nodes.get(worker.node.name)
                usage = fleet.runtime.usage(worker.uid) if node is not None else {}
                if not usage or node is None:
                    continue
                cpu = sum(each.cpu_nano for each in usage.values())
                memory = sum(each.memory_bytes for each in usage.values())
                nodes[worker.node.name] = ResourceUsage(node.cpu_nano + cpu, node.memory_bytes + memory)
                window = _window(usage.values())
                if window >= _MIN_WINDOW:
                    containers = {name: ResourceUsage(each.cpu_nano, each.memory_bytes) for name, each in usage.items()}
                    pods[worker.uid] = PodSample(min(window, _RESOLUTION), containers)
        if self._kubelets is not None:
            remote_nodes, remote_pods = await self._kubelets.sample()
            nodes, pods = {**remote_nodes, **nodes}, {**remote_pods, **pods}
        return Sample(now, _RESOLUTION, nodes, pods)


def _window(usage: Iterable[Usage]) -> float:
    """Return the seconds that the youngest container has run."""
    return min(each.cpu_seconds * NANO / each.cpu_nano if each.cpu_nano else _RESOLUTION for each in usage)


class PodApiAccess:
    """Sends requests of simulated Pods to the API server, with their tokens or as anonymous users."""

    def __init__(self, handle: Handler) -> None:
        self._handle = handle
        self._requests = TaskRegistry()

    def send(self, address: str, request: PodRequest) -> PendingResponse:
        """Send a request from the Pod at `address`. The result receives the response later."""
        pending = PendingResponse()
        if not request.tls:
            pending.response = PodResponse(400, "Client sent an HTTP request to an HTTPS server.\n")
        elif len(self._requests) >= _MAX_POD_REQUESTS:
            pending.response = ConnectionFailure.TIMED_OUT
        else:
            self._requests.start(self._serve(address, request, pending))
        return pending

    async def _serve(self, address: str, request: PodRequest, pending: PendingResponse) -> None:
        headers = {"host": "kubernetes.default.svc", "user-agent": "curl", **dict(request.headers)}
        api_request = Request(request.method, request.path, request.query, headers, request.body, Peer(address))
        answer = await self._handle(api_request)
        if not isinstance(answer, Response):
            pending.response = ConnectionFailure.RESET  # watches and upgrades are not supported
            return
        kinds = [value for name, value in answer.headers if name.lower() == "content-type"]
        body = answer.whole_body.decode("utf-8", "surrogateescape")
        pending.response = PodResponse(answer.status, body, kinds[0] if kinds else TEXT)

    async def stop(self) -> None:
        await self._requests.stop()


def connecting_nodes(
    routes: NodeRoutes, usage: FleetUsage, clock: Clock, handle: Handler
) -> Callable[[Fleet], AbstractAsyncContextManager[None]]:
    """Return a context manager that connects the API server to a fleet. The Pods of the fleet send requests to
    `handle`."""

    @asynccontextmanager
    async def serving(fleet: Fleet) -> AsyncIterator[None]:
        nodes = InProcessNodes(fleet, clock)
        disconnect = routes.connect(nodes.serves, nodes)
        usage.connect(fleet)
        api = PodApiAccess(handle)
        fleet.network.api = api.send
        try:
            yield
        finally:
            usage.disconnect(fleet)
            disconnect()
            await api.stop()

    return serving


class InProcessNodes:
    """A NodeConnection to the fleet of this process."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock

    def serves(self, node: str) -> bool:
        return node in self._fleet.nodes

    @cached_property
    def _host(self) -> FleetHost:
        # Imported with the first request to a node or Pod, so that a cluster starts sooner.
        from setpoint.node.kubelet_api.fleet_host import FleetHost

        return FleetHost(self._fleet, self._clock)

    @cached_property
    def _handle(self) -> Callable[[str, Request], Awaitable[HttpAnswer]]:
        """The handler of requests to nodes, by the name of the node."""
        # Imported with the first request to a node, so that a cluster starts sooner.
        from setpoint.cluster.node_messages import http_answer, node_request
        from setpoint.node.kubelet_api.api import KubeletApi

        api = KubeletApi(self._host, self._clock)

        async def handle(node: str, request: Request) -> HttpAnswer:
            return http_answer(await api.handle(node_request(node, request)))

        return handle

    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        name = node["metadata"]["name"]
        if not self._host.is_reachable(name):
            # The error of a connection attempt to a machine that is switched off or partitioned.
            why = f"dial tcp {kubelet_address(node)}: connect: no route to host"
            raise NodeUnreachable.for_request(node, request, why)
        return await self._handle(name, request)

    def request_pod(self, pod: Obj, port: int, tls: bool, request: Request) -> Response | None:
        pod_request = PodRequest(port, unquote(request.path), request.query, request.method, tls, body=request.body)
        found = self._host.pod_response(pod, pod_request)
        if found is None:
            return None
        body, headers = found.body.encode("utf-8", "surrogateescape"), [("Content-Type", found.content_type)]
        if found.delay:
            return DelayedResponse(found.status, body, headers, found.delay)
        return Response(found.status, body, headers)
