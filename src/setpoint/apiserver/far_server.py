"""The seam to servers outside of this process that do part of our work: webhooks, aggregated API servers.

Who they are is written in objects that users make; so what they answer is not trusted. Redirects are answers like any
other and never followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from setpoint.apiserver.http.message import Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.node_connection import LateResponse, NodeRoutes
from setpoint.apiserver.reader import CacheReader
from setpoint.meta.clock import Clock

FarReply = Response | StreamResponse | UpgradeResponse


@dataclass(frozen=True, slots=True)
class FarServer:
    host: str
    port: int
    name: str = ""
    """What its certificate must say; empty: the host."""
    authority: bytes = b""
    """PEM of those who may have signed it; empty: those that the machine trusts."""
    insecure: bool = False
    """The certificate is not looked at."""
    pod: tuple[str, str] = ("", "")
    """Namespace and name of the Pod that it runs in, if that is known."""
    as_proxy: bool = False
    """We show a certificate by which it knows that we speak for others."""
    shown: str = ""
    """Host and port as messages and the Host header have them; empty: those above."""
    certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)
    """PEM of the certificate and the key that we show."""
    kept: bool = False
    """It is asked often: connections to it are used again."""
    plain: bool = False
    """Without TLS: only for what an administrator has named himself."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.shown or f"{host}:{self.port}"


class FarServers(Protocol):
    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        """Raises FarServerProblem. The head of the answer is awaited for `timeout` seconds at most."""
        ...

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        """The same, with the whole answer (of at most 16 MiB) within `timeout`."""
        ...


class FarServerProblem(Exception):
    """It cannot be reached, or does not answer; the text says why, in upstream's words."""


class NearFirst:
    """Simulated Pods of this process have addresses that lead nowhere: their servers are asked here. All others are
    asked by somebody else."""

    def __init__(self, others: FarServers, routes: NodeRoutes, reader: CacheReader, clock: Clock) -> None:
        self._others = others
        self._clock = clock
        self._routes = routes
        self._reader = reader

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        return await self._near(server, request, timeout) or await self._others.ask(server, request, timeout)

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        return await self._near(server, request, timeout) or await self._others.post(server, request, timeout)

    async def _near(self, server: FarServer, request: Request, timeout: float) -> Response | None:
        pod = self._reader.get("", "pods", *server.pod) if server.pod[1] else None
        near = self._routes.near(pod["spec"].get("nodeName", "")) if pod is not None else None
        if pod is None or near is None:
            return None
        try:
            found = near.reach(pod, server.port, True, request)
        except LookupError:
            found = None
        if found is None:
            raise FarServerProblem(f"dial tcp {server.host}:{server.port}: connect: connection refused")
        if not (server.authority or server.insecure):
            # Nobody whom the machine trusts signs the name of a Service.
            raise FarServerProblem("tls: failed to verify certificate: x509: certificate signed by unknown authority")
        if isinstance(found, LateResponse):
            await self._clock.sleep(min(found.delay, timeout))
            if found.delay > timeout:
                raise FarServerProblem("context deadline exceeded")
        return found


class NobodyThere:
    """For servers that are put together without a network."""

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        raise FarServerProblem("this server does not call others")

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        raise FarServerProblem("this server does not call others")


class Address(NamedTuple):
    host: str
    port: int
    pod: tuple[str, str] = ("", "")


def resolve_service(reader: CacheReader, namespace: str, name: str, port: int) -> Address:
    """Where a Service can be reached. Its own address is for Pods; we go straight to one of those behind it.

    Raises FarServerProblem."""
    service = reader.get("", "services", namespace, name)
    if service is None:
        raise FarServerProblem(f'service "{name}" not found')
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return Address(spec["externalName"], port)
    wanted = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
    if wanted is None:
        raise FarServerProblem(f'no service port {port} found for service "{name}"')
    for endpoint_slice in reader.list("discovery.k8s.io", "endpointslices", namespace):
        labels = endpoint_slice["metadata"].get("labels") or {}
        if labels.get("kubernetes.io/service-name") != name:
            continue
        at = next(
            (one for one in endpoint_slice.get("ports") or () if one.get("name", "") == wanted.get("name", "")), None
        )
        for endpoint in endpoint_slice.get("endpoints") or ():
            if at is not None and at.get("port") and (endpoint.get("conditions") or {}).get("ready", True):
                pod = (endpoint.get("targetRef") or {}).get("name", "")
                return Address(endpoint["addresses"][0], at["port"], (namespace, pod) if pod else ("", ""))
    raise FarServerProblem(f'no endpoints available for service "{name}"')
