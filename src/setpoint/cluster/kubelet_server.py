"""The kubelet server of nodes that run in their own process, simulated or real: HTTPS for the API server and authorized
clients."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.apiserver.filters.authenticate import ANONYMOUS
from setpoint.apiserver.filters.authorize import MASTERS
from setpoint.apiserver.node_connection import KUBELET_PORT
from setpoint.client import Unreachable
from setpoint.cluster.certificates import ensure_certificates, server_context
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.node_messages import http_answer, node_request
from setpoint.cluster.procfs import process_families
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Unauthorized
from setpoint.meta.exposition import CONTENT_TYPE, text
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.interface import NodeHost
from setpoint.node.kubelet_api.metrics import kubelet_families
from setpoint.wire.message import Answer, Request, Response
from setpoint.wire.server import Server

if TYPE_CHECKING:
    from setpoint.node.fleet import Fleet

_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]
_GRACE = 2.0
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES = {
    "stats": "stats",
    "metrics": "metrics",
    "logs": "log",
    "healthz": "healthz",
    "configz": "configz",
    "pods": "pods",
    "runningpods": "pods",
}
"""The subresource that upstream's kubelet authorizes, by the first segment of the path; otherwise it is `proxy`."""


class ServingAddresses(NamedTuple):
    """The addresses of a node's servers, with the ports that were assigned."""

    api: tuple[str, int]
    health: tuple[str, int]


class ServedNodes(NodeHost, Protocol):
    """The nodes that one server serves: simulated ones, or the real node of this machine."""

    def names(self) -> Sequence[str]: ...

    def is_reachable(self, node: str) -> bool:
        """Return whether the node answers, that is, whether it is neither switched off nor partitioned."""
        ...


class KubeletHandler:
    """Answers requests to kubelets. TLS has verified client certificates against the cluster's authority."""

    def __init__(self, host: ServedNodes, api: KubeletApi, access: DelegatedAuth) -> None:
        self._host = host
        self._api = api
        self._access = access

    async def handle(self, request: Request) -> Answer:
        node = self._node(request.headers.get("host", "").rpartition(":")[0])
        try:
            user = await self._access.authenticate(request)
            refusal = await self._refusal(user, node, request)
        except ApiError:
            return Response(401, b"Unauthorized", list(_PLAIN))
        except Unreachable as error:
            return Response(500, f"Authorization error: {error}".encode(), list(_PLAIN))
        if refusal:
            return Response(403, refusal.encode(), list(_PLAIN))
        if request.path == "/metrics":
            families = kubelet_families(self._host, [node] if node else self._host.names())
            return Response(200, text([*families, *process_families()]).encode(), [("Content-Type", CONTENT_TYPE)])
        if node and not self._host.is_reachable(node):
            return Response(503, f'node "{node}" is switched off'.encode(), list(_PLAIN))
        return http_answer(await self._api.handle(node_request(node, request)))

    async def _refusal(self, user: UserInfo, node: str, request: Request) -> str:
        """Return why the request is forbidden; empty if it is allowed. The API server decides by the user's rights on
        the node, also for the API server itself."""
        if MASTERS in user.groups:
            return ""
        if user is ANONYMOUS:
            raise Unauthorized()
        verb = _VERBS.get(request.method, "")
        first = request.path.strip("/").partition("/")[0]
        subresources = dict.fromkeys((_SUBRESOURCES.get(first, "proxy"), "proxy"))
        for subresource in subresources:
            about = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node}
            if await self._access.is_allowed(user, {"resourceAttributes": about}):
                return ""
        shown = ",".join(subresources)
        return f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{shown}])"

    def _node(self, host: str) -> str:
        """Return the node that the Host header names, since all nodes share one server; empty if it names none of
        several."""
        names = self._host.names()
        return host if host in names else names[0] if len(names) == 1 else ""


def kubelet_server(
    ca: bytes | None, address: str, port: int, clock: Clock, access: DelegatedAuth
) -> Callable[[Fleet], AbstractAsyncContextManager[None]]:
    """Return a context manager that serves a fleet at `address`, for clients with certificates of the authority `ca`,
    and sets the fleet's endpoint. Raises ConfigError."""

    @asynccontextmanager
    async def serving(fleet: Fleet) -> AsyncIterator[None]:
        if not ca or not address:
            # Clients could not be authenticated, or could not connect.
            yield
            return
        # Imported here because the agent of a real node does not need the simulation.
        from setpoint.node.kubelet_api.fleet_host import FleetHost

        host = FleetHost(fleet, clock)
        handler = KubeletHandler(host, KubeletApi(host, clock), access)
        with tempfile.TemporaryDirectory(prefix="setpoint-nodes-") as directory:
            server = Server(handler.handle, clock=clock, ssl=_context(Path(directory), ca, address, clock))
            try:
                _, chosen = await server.start(address, port)
            except OSError as error:
                raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror}") from None
            fleet.heartbeat.endpoint = (address, chosen)
            try:
                yield
            finally:
                await server.stop(_GRACE)

    return serving


@dataclass(frozen=True, slots=True)
class NodeServing:
    """The addresses at which a real node serves the kubelet's API and its health."""

    address: str = "0.0.0.0"
    port: int = KUBELET_PORT
    health_address: str = "127.0.0.1"
    health_port: int = 10248
    """The port of `/healthz` in plain HTTP. For both ports, 0 selects a free one."""


@asynccontextmanager
async def serving_node(
    host: ServedNodes,
    tls: ssl.SSLContext,
    access: DelegatedAuth,
    clock: Clock,
    options: NodeServing,
    health: Callable[[], str] = lambda: "",
) -> AsyncIterator[ServingAddresses]:
    """Serve a real node while the block runs. `tls` verifies client certificates; its owner may replace the serving
    certificate. `health` returns why the node is not healthy, or an empty text. Raise ConfigError."""

    async def handle_health(request: Request) -> Answer:
        if request.path != "/healthz":
            return Response(404, b"404 page not found\n", list(_PLAIN))
        problem = health()
        return Response(500, problem.encode(), list(_PLAIN)) if problem else Response(200, b"ok", list(_PLAIN))

    handler = KubeletHandler(host, KubeletApi(host, clock), access)
    servers: list[Server] = []
    addresses: list[tuple[str, int]] = []
    try:
        for server, address, port in (
            (Server(handler.handle, clock=clock, ssl=tls), options.address, options.port),
            (Server(handle_health, clock=clock), options.health_address, options.health_port),
        ):
            try:
                addresses.append(await server.start(address, port))
            except OSError as error:
                raise ConfigError(f"cannot listen on {address}:{port}: {error.strerror}") from None
            servers.append(server)
        yield ServingAddresses(*addresses)
    finally:
        for server in reversed(servers):
            await server.stop(_GRACE)


def _context(directory: Path, ca: bytes, address: str, clock: Clock) -> ssl.SSLContext:
    authority = directory / "client-ca.crt"
    authority.write_bytes(ca)
    files = ensure_certificates(directory / "pki", clock.now(), extra_names=(address,))
    return server_context(files, authority)
