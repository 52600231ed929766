"""Requests from the API server to nodes: logs, commands, usage, and what clients proxy to a node or its Pods.

Nodes that run in this process are called directly; all others are dialled at the address that they report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

from setpoint.meta.errors import PlainServerError, ServiceUnavailable
from setpoint.meta.objects import Obj
from setpoint.wire.message import HttpAnswer, Request, Response

_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
"""The order of preference. Addresses come before names, because the address that was checked is then the one dialled,
and no name need be resolvable."""
KUBELET_PORT = 10250


class NodeUnreachable(PlainServerError):
    """A node does not answer. Clients see the message, with the code that upstream gives it."""

    why = ""
    """The cause alone, without the request."""

    @classmethod
    def for_request(cls, node: Obj, request: Request, why: str) -> NodeUnreachable:
        query = f"?{request.query}" if request.query else ""
        method = request.method.capitalize()
        found = cls(f'{method} "https://{kubelet_address(node)}{request.path}{query}": {why}')
        found.why = why
        return found


class NodeConnection(Protocol):
    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        """Send a request to a node. Raise NodeUnreachable.

        Redirects are returned, never followed. The answer to a request that offers an upgrade may be another than 101:
        then nothing more is sent over that connection.
        """
        ...


@dataclass(slots=True)
class DelayedResponse(Response):
    """A response that is due only after a delay."""

    delay: float = 0.0
    """Seconds."""


class InProcessNodes(NodeConnection, Protocol):
    """Nodes that run in this process."""

    def request_pod(self, pod: Obj, port: int, tls: bool, request: Request) -> Response | None:
        """Return the response of a Pod, or None if it does not listen on the port. Raise LookupError if that is not
        known."""
        ...


class RemoteNodes(NodeConnection, Protocol):
    """Nodes of other processes, and their Pods."""

    async def request_pod(self, address: str, port: int, tls: bool, request: Request) -> HttpAnswer:
        """Send a request to the address of a Pod, as `request_node` does to a node. Raise ServiceUnavailable."""
        ...


class NodeRoutes:
    """Finds the connection to each node."""

    def __init__(self, remote: RemoteNodes | None = None) -> None:
        self.remote = remote
        """The connection to nodes of other processes; None if there is none."""
        self._in_process: list[tuple[Callable[[str], bool], InProcessNodes]] = []

    def connect(self, serves: Callable[[str], bool], connection: InProcessNodes) -> Callable[[], None]:
        """Use `connection` for the nodes for whose names `serves` is true, until the returned function is called."""
        route = (serves, connection)
        self._in_process.append(route)

        def disconnect() -> None:
            self._in_process.remove(route)

        return disconnect

    def in_process(self, node: str) -> InProcessNodes | None:
        """Return the connection to a node of this process, or None if it is not one."""
        return next((connection for serves, connection in self._in_process if serves(node)), None)

    async def request_pod(self, address: str, port: int, tls: bool, request: Request) -> HttpAnswer:
        if self.remote is None:
            raise ServiceUnavailable(f"error trying to reach service: this server dials no Pods ({address}:{port})")
        return await self.remote.request_pod(address, port, tls, request)

    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        connection = self.in_process(node["metadata"]["name"]) or self.remote
        if connection is None:
            raise NodeUnreachable.for_request(node, request, "no agent of this node is connected to this server")
        return await connection.request_node(node, request)


def preferred_address(node: Obj, types: tuple[str, ...] = _ADDRESS_TYPES) -> str:
    addresses = (node.get("status") or {}).get("addresses") or ()
    for each in addresses:
        # A node whose host name is an IP address is reached there.
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
