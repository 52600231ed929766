"""The seam to servers outside of this process that do part of our work: webhooks, aggregated API servers.

Who they are is written in objects that users make; so what they answer is not trusted. Redirects are answers like any
other and never followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from setpoint.apiserver.http.message import Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.reader import CacheReader

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
    as_proxy: bool = False
    """We show a certificate by which it knows that we speak for others."""
    shown: str = ""
    """Host and port as messages and the Host header have them; empty: those above."""

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.shown or f"{host}:{self.port}"


class FarServers(Protocol):
    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        """Over TLS. Raises FarServerProblem. The head of the answer is awaited for `timeout` seconds at most."""
        ...

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        """The same, with the whole answer (of at most 16 MiB) within `timeout`."""
        ...


class FarServerProblem(Exception):
    """It cannot be reached, or does not answer; the text says why, in upstream's words."""


class NobodyThere:
    """For servers that are put together without a network."""

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        raise FarServerProblem("this server does not call others")

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        raise FarServerProblem("this server does not call others")


def resolve_service(reader: CacheReader, namespace: str, name: str, port: int) -> tuple[str, int]:
    """Where a Service can be reached. Its own address is for Pods; we go straight to one of those behind it.

    Raises FarServerProblem."""
    service = reader.get("", "services", namespace, name)
    if service is None:
        raise FarServerProblem(f'service "{name}" not found')
    spec = service["spec"]
    if spec.get("type") == "ExternalName":
        return spec["externalName"], port
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
                return endpoint["addresses"][0], at["port"]
    raise FarServerProblem(f'no endpoints available for service "{name}"')
