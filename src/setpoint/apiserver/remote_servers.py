"""The interface to servers outside of this process that do part of its work: webhooks, aggregated API servers.

Users name these servers in objects, so their responses are not trusted. Redirects are responses like any other and are
never followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from setpoint.apiserver.api_resources import CacheReader
from setpoint.apiserver.node_connection import DelayedResponse, NodeRoutes
from setpoint.meta.clock import Clock
from setpoint.wire.message import HttpAnswer, Request, Response


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """The address of a server, and how it is authenticated."""

    host: str
    port: int
    server_name: str = ""
    """The name that its certificate must contain; empty means the host."""
    ca_bundle: bytes = b""
    """The certificate authorities that may have signed its certificate, PEM; empty means those that the machine
    trusts."""
    insecure: bool = False
    """Whether any certificate is accepted."""
    pod: tuple[str, str] = ("", "")
    """Namespace and name of the Pod in which it runs; empty if that is not known."""
    proxy_certificate: bool = False
    """Whether this server authenticates itself with the front proxy's certificate, and names the user in headers."""
    display_address: str = ""
    """Host and port for messages and the Host header; empty means `host` and `port`."""
    client_certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)
    """The client certificate and its key, PEM; None means no certificate."""
    keep_alive: bool = False
    """Whether connections are pooled, for servers that are called often."""
    plaintext: bool = False
    """Whether TLS is not used; only for servers that an administrator configured."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.display_address or f"{host}:{self.port}"


class RemoteServers(Protocol):
    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        """Send a request, and wait at most `timeout` seconds for the head of the response. Raise RemoteServerError."""
        ...

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        """Send a request, and return the whole response, of at most 16 MiB, within `timeout` seconds.

        Raise RemoteServerError."""
        ...


class RemoteServerError(Exception):
    """A server cannot be reached, or does not answer; the message says why, in upstream's words."""


class SimulatedPodsFirst:
    """Calls servers in simulated Pods of this process directly, because their addresses exist nowhere else.

    All other servers are called through `others`.
    """

    def __init__(self, delegate: RemoteServers, routes: NodeRoutes, reader: CacheReader, clock: Clock) -> None:
        self._delegate = delegate
        self._clock = clock
        self._routes = routes
        self._reader = reader

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        return await self._simulated(server, request, timeout) or await self._delegate.forward(server, request, timeout)

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        return await self._simulated(server, request, timeout) or await self._delegate.call(server, request, timeout)

    async def _simulated(self, server: RemoteServer, request: Request, timeout: float) -> Response | None:
        pod = self._reader.get("", "pods", *server.pod) if server.pod[1] else None
        node = self._routes.in_process(pod["spec"].get("nodeName", "")) if pod is not None else None
        if pod is None or node is None:
            return None
        try:
            found = node.request_pod(pod, server.port, True, request)
        except LookupError:
            found = None
        if found is None:
            raise RemoteServerError(f"dial tcp {server.host}:{server.port}: connect: connection refused")
        if not (server.ca_bundle or server.insecure):
            # No authority that the machine trusts signs the name of a Service.
            raise RemoteServerError("tls: failed to verify certificate: x509: certificate signed by unknown authority")
        if isinstance(found, DelayedResponse):
            await self._clock.sleep(min(found.delay, timeout))
            if found.delay > timeout:
                raise RemoteServerError("context deadline exceeded")
        return found


class NoRemoteServers:
    """Refuses every call, for API servers that are built without a network."""

    async def forward(self, server: RemoteServer, request: Request, timeout: float) -> HttpAnswer:
        raise RemoteServerError("this server does not call others")

    async def call(self, server: RemoteServer, request: Request, timeout: float) -> Response:
        raise RemoteServerError("this server does not call others")


class Address(NamedTuple):
    host: str
    port: int
    pod: tuple[str, str] = ("", "")


def resolve_service(reader: CacheReader, namespace: str, name: str, port: int) -> Address:
    """Return the address of a ready endpoint of a Service. The cluster IP is reachable only from Pods.

    Raises RemoteServerError."""
    service = reader.get("", "services", namespace, name)
    if service is None:
        raise RemoteServerError(f'service "{name}" not found')
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return Address(spec["externalName"], port)
    wanted = next((one for one in spec.get("ports") or () if one.get("port") == port), None)
    if wanted is None:
        raise RemoteServerError(f'no service port {port} found for service "{name}"')
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
    raise RemoteServerError(f'no endpoints available for service "{name}"')
