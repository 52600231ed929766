"""The kubelet server of nodes that run in their own process: HTTPS for the API server and authorized clients."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from setpoint.apiserver.filters.authenticate import ANONYMOUS
from setpoint.apiserver.filters.authorize import MASTERS
from setpoint.client import Unreachable
from setpoint.cluster.certificates import ensure_certificates, server_context
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.in_process_nodes import http_answer, node_request
from setpoint.cluster.procfs import process_families
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Unauthorized
from setpoint.meta.exposition import CONTENT_TYPE, text
from setpoint.node.fleet import Fleet
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.fleet_host import FleetHost
from setpoint.node.kubelet_api.metrics import kubelet_families
from setpoint.wire.message import Answer, Request, Response
from setpoint.wire.server import Server

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


class KubeletHandler:
    """Answers requests to the kubelets of a fleet. TLS has verified client certificates against the cluster's
    authority."""

    def __init__(self, fleet: Fleet, host: FleetHost, api: KubeletApi, access: DelegatedAuth) -> None:
        self._fleet = fleet
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
            families = kubelet_families(self._host, [node] if node else self._fleet.nodes)
            return Response(200, text([*families, *process_families()]).encode(), [("Content-Type", CONTENT_TYPE)])
        if node and not self._host.is_reachable(node):
            return Response(503, f'node "{node}" is switched off'.encode(), list(_PLAIN))
        return http_answer(self._api.handle(node_request(node, request)))

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
        names = list(self._fleet.nodes)
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
        host = FleetHost(fleet)
        handler = KubeletHandler(fleet, host, KubeletApi(host, clock), access)
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


def _context(directory: Path, ca: bytes, address: str, clock: Clock) -> ssl.SSLContext:
    authority = directory / "client-ca.crt"
    authority.write_bytes(ca)
    files = ensure_certificates(directory / "pki", clock.now(), extra_names=(address,))
    return server_context(files, authority)
