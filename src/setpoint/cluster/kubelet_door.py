"""The doors of nodes that run in a process of their own: HTTPS, for the API server and whom it vouches for."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from setpoint.apiserver.filters.authenticate import ANONYMOUS
from setpoint.apiserver.filters.authorize import MASTERS
from setpoint.apiserver.http.certificates import ensure_certificates, server_context
from setpoint.apiserver.http.message import Answer, Request, Response
from setpoint.apiserver.http.server import Server
from setpoint.client import Unreachable
from setpoint.cluster.config import ConfigError
from setpoint.cluster.delegated_access import DelegatedAccess
from setpoint.cluster.node_access import node_request, reply_of
from setpoint.cluster.process_metrics import process_families
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError, Unauthorized
from setpoint.meta.exposition import CONTENT_TYPE, text
from setpoint.node.fleet import Fleet
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.fleet_host import FleetHost
from setpoint.node.kubelet_api.metrics import kubelet_families

_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]
_GRACE = 2.0
_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES = {
    "stats": "stats", "metrics": "metrics", "logs": "log", "healthz": "healthz", "configz": "configz", "pods": "pods",
    "runningpods": "pods",
}  # fmt: skip
"""By the first part of the path: what upstream's kubelet takes it for; all else is `proxy`."""


class KubeletDoor:
    """Certificates of clients were checked against the cluster's authority by the time a request is here."""

    def __init__(self, fleet: Fleet, host: FleetHost, api: KubeletApi, access: DelegatedAccess) -> None:
        self._fleet = fleet
        self._host = host
        self._api = api
        self._access = access

    async def handle(self, request: Request) -> Answer:
        node = self._meant(request.headers.get("host", "").rpartition(":")[0])
        try:
            user = await self._access.who(request)
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
        if node and not self._host.answers(node):
            return Response(503, f'node "{node}" is switched off'.encode(), list(_PLAIN))
        return reply_of(self._api.handle(node_request(node, request)))

    async def _refusal(self, user: UserInfo, node: str, request: Request) -> str:
        """Empty: they may. The API server is asked what they may do with the node, of itself as of all others."""
        if MASTERS in user.groups:
            return ""
        if user is ANONYMOUS:
            raise Unauthorized()
        verb = _VERBS.get(request.method, "")
        first = request.path.strip("/").partition("/")[0]
        parts = dict.fromkeys((_SUBRESOURCES.get(first, "proxy"), "proxy"))
        for part in parts:
            about = {"verb": verb, "version": "v1", "resource": "nodes", "subresource": part, "name": node}
            if await self._access.may(user, {"resourceAttributes": about}):
                return ""
        told = ",".join(parts)
        return f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{told}])"

    def _meant(self, host: str) -> str:
        """All nodes are behind one door: the name by which one was asked tells which, if it is its own."""
        names = list(self._fleet.nodes)
        return host if host in names else names[0] if len(names) == 1 else ""


def kubelet_door(
    ca: bytes | None, address: str, port: int, clock: Clock, access: DelegatedAccess
) -> Callable[[Fleet], AbstractAsyncContextManager[None]]:
    """Opens the door of a fleet at `address`, for clients with certificates of the authority `ca`, and tells the fleet
    where it is. Raises ConfigError."""

    @asynccontextmanager
    async def serving(fleet: Fleet) -> AsyncIterator[None]:
        if not ca or not address:
            # Nobody could be told from anybody else, or nobody could come.
            yield
            return
        host = FleetHost(fleet)
        door = KubeletDoor(fleet, host, KubeletApi(host, clock), access)
        with tempfile.TemporaryDirectory(prefix="setpoint-nodes-") as directory:
            server = Server(door.handle, clock=clock, ssl=_context(Path(directory), ca, address, clock))
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
