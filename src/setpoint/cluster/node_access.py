"""From the API server straight to the nodes of the same process, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import unquote

from setpoint.apiserver.http.message import Handler, Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.node_connection import LateResponse, NodeReply, NodeRoutes, NodeUnreachable, kubelet_address
from setpoint.apiserver.request import parse_query
from setpoint.apiserver.watch_cache import Obj
from setpoint.cluster.api_from_pods import api_from_pods
from setpoint.cluster.streaming import sender
from setpoint.cluster.usage_sampling import FleetUsage
from setpoint.meta.clock import Clock
from setpoint.node.fleet import Fleet
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.fleet_host import FleetHost
from setpoint.node.kubelet_api.messages import NodeAnswer, NodeRequest, Streamed, Switched
from setpoint.node.runtime.web_messages import WebRequest


def near_nodes(
    routes: NodeRoutes, usage: FleetUsage, clock: Clock, handle: Handler
) -> Callable[[Fleet], AbstractAsyncContextManager[None]]:
    """Connects a fleet, for as long as it is there. Its Pods reach the API server through `handle`."""

    @asynccontextmanager
    async def serving(fleet: Fleet) -> AsyncIterator[None]:
        host = FleetHost(fleet)
        nodes = NearNodes(host, KubeletApi(host, clock))
        disconnect = routes.connect(nodes.serves, nodes)
        usage.connect(fleet)
        try:
            async with api_from_pods(handle) as api:
                fleet.network.api = api.ask
                yield
        finally:
            usage.disconnect(fleet)
            disconnect()

    return serving


class NearNodes:
    """A NodeConnection."""

    def __init__(self, host: FleetHost, api: KubeletApi) -> None:
        self._host = host
        self._api = api

    def serves(self, node: str) -> bool:
        return self._host.owns(node)

    async def ask(self, node: Obj, request: Request) -> NodeReply:
        name = node["metadata"]["name"]
        if not self._host.answers(name):
            # As if it had been dialled: a machine that is off, or cut off, says nothing.
            why = f"dial tcp {kubelet_address(node)}: connect: no route to host"
            raise NodeUnreachable.asking(node, request, why)
        return reply_of(self._api.handle(node_request(name, request)))

    def reach(self, pod: Obj, port: int, tls: bool, request: Request) -> Response | None:
        asked = WebRequest(port, unquote(request.path), request.query, request.method, tls, body=request.body)
        found = self._host.web(pod, asked)
        if found is None:
            return None
        body, headers = found.body.encode("utf-8", "surrogateescape"), [("Content-Type", found.content_type)]
        if found.delay:
            return LateResponse(found.status, body, headers, found.delay)
        return Response(found.status, body, headers)


def node_request(node: str, request: Request) -> NodeRequest:
    query = parse_query(request.query)
    return NodeRequest(node, request.method, unquote(request.path), query, request.headers, request.repeated)


def reply_of(answer: NodeAnswer) -> NodeReply:
    if isinstance(answer, Switched):
        return UpgradeResponse(answer.headers, answer.run)
    if isinstance(answer, Streamed):
        return StreamResponse(200, answer.headers, sender(answer.pieces))
    return Response(answer.status, answer.body, answer.headers)
