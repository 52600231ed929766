"""From the API server to nodes of other processes: HTTPS to the address that each reports.

What a node answers is not trusted: redirects are handed back and never followed, an upgrade counts only if it is
answered with 101, and after anything else the connection is closed. A node's address may not lead back to this
machine or to its neighbours on the link; the address that is dialled is the very one that was checked.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address

from setpoint.apiserver.http.message import RawConnection, Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.node_connection import NodeReply, NodeUnreachable, kubelet_port, preferred_address
from setpoint.apiserver.watch_cache import Obj
from setpoint.client.tls import ServerCertificateError, TlsClient
from setpoint.cluster.node_answer import Head, body_of, read_head
from setpoint.cluster.streaming import sender
from setpoint.meta.errors import BadRequest, ServiceUnavailable

Address = IPv4Address | IPv6Address

_CONNECT_TIMEOUT, _ANSWER_TIMEOUT = 10.0, 30.0
_NO_ANSWER = "net/http: timeout awaiting response headers"
_LONGEST_ERROR = 64 * 1024
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))


def is_allowed(address: Address) -> bool:
    """Neither this machine nor its link, nor anything that is no single machine."""
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


class FarNodes:
    """A NodeConnection, and the way to Pods."""

    def __init__(self, tls: Callable[[], TlsClient], allowed: Callable[[Address], bool] = is_allowed) -> None:
        """`tls` is called when the first node is dialled."""
        self._make_tls = tls
        self._allowed = allowed

    async def ask(self, node: Obj, request: Request) -> NodeReply:
        # The name says which node is meant to those who answer for many; the address is where it is.
        host = f"{node['metadata']['name']}:{kubelet_port(node)}"
        try:
            address = await self._checked(preferred_address(node))
            return await self._exchange(str(address), kubelet_port(node), self._tls, host, request)
        except (OSError, EOFError) as error:
            raise NodeUnreachable.asking(node, request, str(error) or _NO_ANSWER) from None

    async def reach(self, address: str, port: int, tls: bool, request: Request) -> NodeReply:
        try:
            checked = await self._checked(address)
            client = self._tls_to_pods if tls else None
            return await self._exchange(str(checked), port, client, f"{address}:{port}", request)
        except (OSError, EOFError) as error:
            raise ServiceUnavailable(f"error trying to reach service: {str(error) or _NO_ANSWER}") from None

    @cached_property
    def _tls(self) -> TlsClient:
        return self._make_tls()

    @cached_property
    def _tls_to_pods(self) -> TlsClient:
        return TlsClient(None)

    async def _checked(self, host: str) -> Address:
        """Where to dial. All addresses that a name has must be allowed."""
        try:
            found = [ip_address(host)]
        except ValueError:
            known = await asyncio.get_running_loop().getaddrinfo(host, None, type=1)
            found = [ip_address(str(each[4][0]).partition("%")[0]) for each in known]
        if not found or not all(map(self._allowed, found)):
            raise BadRequest("address not allowed")
        return found[0]

    async def _connected(
        self, address: str, port: int, tls: TlsClient | None, host: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # One whose certificate is checked must have it for the address; others are told which node is meant.
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            if tls is None:
                return await asyncio.open_connection(address, port)
            return await tls.open(address, port, host.rpartition(":")[0] if tls.is_insecure else address)

    async def _exchange(self, address: str, port: int, tls: TlsClient | None, host: str, request: Request) -> NodeReply:
        try:
            reader, writer = await self._connected(address, port, tls, host)
        except ServerCertificateError:
            raise
        except ssl.SSLError as error:
            raise OSError(f"tls: {error.reason or error}") from None
        except OSError as error:
            shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            why = f"connect: {os.strerror(error.errno).lower()}" if error.errno else "i/o timeout"
            raise OSError(f"dial tcp {shown}: {why}") from None
        try:
            writer.write(encoded(request, host))
            upgrade = "upgrade" in request.headers
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                head = await read_head(reader, upgrade)
            if upgrade and head.status == 101:
                return UpgradeResponse(head.without(("sec-websocket-extensions",)), bridge(reader, writer))
            if upgrade or not 200 <= head.status < 300 or request.method == "HEAD":
                async with asyncio.timeout(_ANSWER_TIMEOUT):
                    body = b"" if request.method == "HEAD" else await _bounded(head, reader)
                writer.close()
                return Response(head.status, body, head.without(_HOP_BY_HOP))
        except BaseException:
            writer.close()
            raise
        return StreamResponse(head.status, head.without(_HOP_BY_HOP), _stream(head, reader, writer))


def encoded(request: Request, host: str, *, keep: bool = False) -> bytes:
    """`keep`: the connection is to stay open after the answer."""
    target = f"{request.path}?{request.query}" if request.query else request.path
    lines = [f"{request.method} {target} HTTP/1.1", f"host: {host}"]
    for name, value in request.headers.items():
        if name not in ("host", "content-length", "transfer-encoding", "connection"):
            lines += [f"{name}: {each}" for each in request.repeated.get(name) or [value]]
    if not keep:
        lines.append("connection: upgrade" if "upgrade" in request.headers else "connection: close")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(request.body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + request.body


async def _bounded(head: Head, reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    async for piece in body_of(head, reader):
        found += piece
        if len(found) > _LONGEST_ERROR:
            break
    return bytes(found[:_LONGEST_ERROR])


def _stream(head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Callable[..., Awaitable[None]]:
    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            async for piece in body_of(head, reader):
                yield piece
        finally:
            writer.close()

    return sender(pieces())


def bridge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Callable[[RawConnection], Awaitable[None]]:
    async def run(client: RawConnection) -> None:
        async def up() -> None:
            while piece := await client.read():
                writer.write(piece)
                await writer.drain()

        async def down() -> None:
            while piece := await reader.read(64 * 1024):
                client.write(piece)
                await client.drained()

        tasks = [asyncio.ensure_future(up()), asyncio.ensure_future(down())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            writer.close()
            for task in tasks:
                with suppress(OSError, asyncio.CancelledError):
                    task.result()

    return run
