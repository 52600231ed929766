"""Requests from the API server to nodes of other processes, and to their Pods: HTTPS to the address that each reports.

The address of a node must not lead back to this machine or to its neighbours on the link; the address that is dialled
is the one that was checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address

from setpoint.apiserver.node_connection import NodeUnreachable, kubelet_port, preferred_address
from setpoint.cluster.network_servers import dial
from setpoint.meta.errors import BadRequest, ServiceUnavailable
from setpoint.meta.objects import Obj
from setpoint.wire.forwarding import send, streamed_response, truncated_response, upgrade_response
from setpoint.wire.message import HttpAnswer, Request
from setpoint.wire.tls import TlsClient

Address = IPv4Address | IPv6Address

_RESPONSE_TIMEOUT = 30.0
_NO_RESPONSE = "net/http: timeout awaiting response headers"
_MAX_ERROR = 64 * 1024
"""Bytes of the body of an error response that are returned."""


def is_allowed(address: Address) -> bool:
    """Return whether an address is that of a single machine, and neither this machine's nor on its link."""
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


class RemoteNodes:
    """A NodeConnection, and the connection to Pods."""

    def __init__(self, tls: Callable[[], TlsClient], allowed: Callable[[Address], bool] = is_allowed) -> None:
        """`tls` is called when the first node is dialled."""
        self._make_tls = tls
        self._allowed = allowed

    async def request_node(self, node: Obj, request: Request) -> HttpAnswer:
        # Where one address serves many nodes, the name in the Host header selects the node.
        name, port = node["metadata"]["name"], kubelet_port(node)
        try:
            address = str(await self._checked(preferred_address(node)))
            # A verified certificate must be valid for the address; the others need only select the node.
            server_name = name if self._tls.is_insecure else address
            return await _request(address, port, self._tls, server_name, f"{name}:{port}", request)
        except OSError as error:
            raise NodeUnreachable.for_request(node, request, str(error) or _NO_RESPONSE) from None

    async def request_pod(self, address: str, port: int, tls: bool, request: Request) -> HttpAnswer:
        try:
            checked = str(await self._checked(address))
            client = self._tls_to_pods if tls else None
            return await _request(checked, port, client, address, f"{address}:{port}", request)
        except OSError as error:
            raise ServiceUnavailable(f"error trying to reach service: {str(error) or _NO_RESPONSE}") from None

    @cached_property
    def _tls(self) -> TlsClient:
        return self._make_tls()

    @cached_property
    def _tls_to_pods(self) -> TlsClient:
        return TlsClient(None)

    async def _checked(self, host: str) -> Address:
        """Return the address to dial. All addresses of a name must be allowed."""
        try:
            found = [ip_address(host)]
        except ValueError:
            known = await asyncio.get_running_loop().getaddrinfo(host, None, type=1)
            found = [ip_address(str(each[4][0]).partition("%")[0]) for each in known]
        if not found or not all(map(self._allowed, found)):
            raise BadRequest("address not allowed")
        return found[0]


async def _request(
    address: str, port: int, tls: TlsClient | None, server_name: str, host: str, request: Request
) -> HttpAnswer:
    """Raise OSError."""
    connection = await dial(address, port, tls, server_name)
    try:
        exchange = send(connection, request, host)
        async with asyncio.timeout(_RESPONSE_TIMEOUT):
            await connection.head(exchange)
        if exchange.status == 101:
            return upgrade_response(connection, exchange)
        if exchange.offers_upgrade or not exchange.has_body or not 200 <= exchange.status < 300:
            async with asyncio.timeout(_RESPONSE_TIMEOUT):
                response = await truncated_response(connection, exchange, _MAX_ERROR)
            connection.close()
            return response
    except BaseException:
        connection.abort()
        raise
    return streamed_response(connection, exchange)
