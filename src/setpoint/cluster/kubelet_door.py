"""The doors of nodes that run in a process of their own: HTTPS, for the API server and nobody else."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from setpoint.apiserver.filters.authenticate import CertificateAuthenticator
from setpoint.apiserver.filters.authorize import MASTERS
from setpoint.apiserver.http.certificates import ensure_certificates, server_context
from setpoint.apiserver.http.message import Answer, Request, Response
from setpoint.apiserver.http.server import Server
from setpoint.cluster.config import ConfigError
from setpoint.cluster.kubelet_client import KUBELET_CLIENT
from setpoint.cluster.node_access import node_request, reply_of
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.node.fleet import Fleet
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.fleet_host import FleetHost

_PLAIN = [("Content-Type", "text/plain; charset=utf-8")]
_GRACE = 2.0


class KubeletDoor:
    """Certificates of clients were checked against the cluster's authority by the time a request is here."""

    def __init__(self, host: FleetHost, api: KubeletApi, nodes: Callable[[], list[str]]) -> None:
        self._host = host
        self._api = api
        self._nodes = nodes
        self._authenticator = CertificateAuthenticator()

    async def handle(self, request: Request) -> Answer:
        try:
            user = self._authenticator.authenticate(request)
        except ApiError:
            user = None
        if user is None:
            return Response(401, b"Unauthorized", list(_PLAIN))
        if user.name != KUBELET_CLIENT and MASTERS not in user.groups:
            text = f"Forbidden (user={user.name}, verb={request.method.lower()}, resource=nodes, subresource=proxy)"
            return Response(403, text.encode(), list(_PLAIN))
        node = self._meant(request.headers.get("host", "").rpartition(":")[0])
        if node and not self._host.answers(node):
            return Response(503, f'node "{node}" is switched off'.encode(), list(_PLAIN))
        return reply_of(self._api.handle(node_request(node, request)))

    def _meant(self, host: str) -> str:
        """All nodes are behind one door: the name by which one was asked tells which, if it is its own."""
        names = self._nodes()
        return host if host in names else names[0] if len(names) == 1 else ""


def kubelet_door(
    ca: bytes | None, address: str, port: int, clock: Clock
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
        door = KubeletDoor(host, KubeletApi(host, clock), lambda: list(fleet.nodes))
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
