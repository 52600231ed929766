"""How the API server asks a node something: for logs, commands, usage, or what a proxy is asked for.

Nodes of this very process are asked directly; all others are dialled at the address they report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

from setpoint.apiserver.http.message import Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.watch_cache import Obj
from setpoint.meta.errors import PlainServerError, ServiceUnavailable

NodeReply = Response | StreamResponse | UpgradeResponse

_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
"""Addresses before names: what is dialled is what was checked, and nobody need know the names."""
KUBELET_PORT = 10250


class NodeUnreachable(PlainServerError):
    """Clients see a sentence, with the code that upstream gives it."""

    why = ""
    """Without what was asked."""

    @classmethod
    def asking(cls, node: Obj, request: Request, why: str) -> NodeUnreachable:
        query = f"?{request.query}" if request.query else ""
        method = request.method.capitalize()
        found = cls(f'{method} "https://{kubelet_address(node)}{request.path}{query}": {why}')
        found.why = why
        return found


class NodeConnection(Protocol):
    async def ask(self, node: Obj, request: Request) -> NodeReply:
        """Raises NodeUnreachable. Redirects are handed back, never followed. To a request that offers an upgrade the
        answer may be something else than 101: then nothing more is sent over that connection."""
        ...


@dataclass(slots=True)
class LateResponse(Response):
    """One that is not there at once."""

    delay: float = 0.0


class NearNodes(NodeConnection, Protocol):
    """Nodes of this very process."""

    def reach(self, pod: Obj, port: int, tls: bool, request: Request) -> Response | None:
        """What a Pod answers at the port; None: nothing listens there. Raises LookupError when that is not known."""
        ...


class FarNodes(NodeConnection, Protocol):
    """Nodes of other processes, and what runs on them."""

    async def reach(self, address: str, port: int, tls: bool, request: Request) -> NodeReply:
        """As `ask`, at an address of a Pod. Raises ServiceUnavailable."""
        ...


class NodeRoutes:
    """The way to each node."""

    def __init__(self, otherwise: FarNodes | None = None) -> None:
        self.otherwise = otherwise
        """For nodes of other processes."""
        self._near: list[tuple[Callable[[str], bool], NearNodes]] = []

    def connect(self, serves: Callable[[str], bool], connection: NearNodes) -> Callable[[], None]:
        """From now on, nodes for whose names `serves` says so are asked this way; what is returned ends it."""
        route = (serves, connection)
        self._near.append(route)

        def disconnect() -> None:
            self._near.remove(route)

        return disconnect

    def near(self, node: str) -> NearNodes | None:
        """Those who know the node, if it is one of this process."""
        return next((connection for serves, connection in self._near if serves(node)), None)

    async def reach(self, address: str, port: int, tls: bool, request: Request) -> NodeReply:
        if self.otherwise is None:
            raise ServiceUnavailable(f"error trying to reach service: this server dials no Pods ({address}:{port})")
        return await self.otherwise.reach(address, port, tls, request)

    async def ask(self, node: Obj, request: Request) -> NodeReply:
        name = node["metadata"]["name"]
        for serves, connection in self._near:
            if serves(name):
                return await connection.ask(node, request)
        if self.otherwise is None:
            raise NodeUnreachable.asking(node, request, "no agent of this node is connected to this server")
        return await self.otherwise.ask(node, request)


def preferred_address(node: Obj, types: tuple[str, ...] = _ADDRESS_TYPES) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    for each in addresses:
        # A node that calls itself by an address wants to be found there.
        if each.get("type") == "Hostname" and is_ip(each.get("address", "")):
            return str(each["address"])
    for wanted in types:
        for each in addresses:
            if each.get("type") == wanted and each.get("address"):
                return str(each["address"])
    known = ", ".join(f"{each.get('type')}:{each.get('address')}" for each in addresses)
    raise PlainServerError(f"no preferred addresses found; known addresses: [{known}]")


def is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def kubelet_port(node: Obj) -> int:
    endpoints = (node.get("status") or {}).get("daemonEndpoints") or {}
    return int((endpoints.get("kubeletEndpoint") or {}).get("Port") or 0) or KUBELET_PORT


def kubelet_address(node: Obj, types: tuple[str, ...] = _ADDRESS_TYPES) -> str:
    host = preferred_address(node, types)
    return f"[{host}]:{kubelet_port(node)}" if ":" in host else f"{host}:{kubelet_port(node)}"
