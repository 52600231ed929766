"""HTTPS to webhooks, issuers of tokens and aggregated API servers. One connection for each request, closed after its
answer; those who are asked for every request that comes in keep theirs."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache, partial
from pathlib import Path

from setpoint.apiserver.far_server import FarReply, FarServer, FarServerProblem
from setpoint.apiserver.http.message import Request, Response, StreamResponse, UpgradeResponse
from setpoint.client.tls import ServerCertificateError, TlsClient, Trust
from setpoint.cluster.far_nodes import bridge, encoded
from setpoint.cluster.node_answer import Head, body_of, read_head
from setpoint.cluster.streaming import sender
from setpoint.meta.clock import Clock

_CONNECT_TIMEOUT = 10.0
_LONGEST = 16 * 1024 * 1024
_NOTHING = "EOF"
"""No answer at all."""
_MOST_IDLE, _MOST_SERVERS = 4, 64
_HOP_BY_HOP = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class NetworkServers:
    def __init__(self, clock: Clock, certificate: Callable[[], Path] | None = None) -> None:
        """`certificate` gives the file with the certificate and key that we show where we speak for others."""
        self._certificate = certificate
        self._tls = lru_cache(maxsize=_MOST_SERVERS)(partial(_tls_client, clock))
        self._idle: OrderedDict[FarServer, list[_Stream]] = OrderedDict()
        """Connections that wait for the next question; bounded."""

    async def ask(self, server: FarServer, request: Request, timeout: float) -> FarReply:
        reader, writer = await self._connect(server)
        try:
            upgrade = "upgrade" in request.headers
            head = await _answer(reader, writer, server, request, timeout, upgrade)
            if upgrade and head.status == 101:
                return UpgradeResponse(head.without(("sec-websocket-extensions",)), bridge(reader, writer))
            if upgrade or request.method == "HEAD":
                async with asyncio.timeout(timeout):
                    body = b"" if request.method == "HEAD" else await _whole(head, reader)
                writer.close()
                return Response(head.status, body, head.without(_HOP_BY_HOP))
        except OSError as error:
            writer.close()
            raise FarServerProblem(str(error) or "context deadline exceeded") from None
        except BaseException:
            writer.close()
            raise

        async def pieces() -> AsyncGenerator[bytes, None]:
            try:
                async for piece in body_of(head, reader):
                    yield piece
            finally:
                writer.close()

        return StreamResponse(head.status, head.without(_HOP_BY_HOP), sender(pieces()))

    async def post(self, server: FarServer, request: Request, timeout: float) -> Response:
        try:
            async with asyncio.timeout(timeout):
                while server.kept and self._idle.get(server):
                    stream = self._idle[server].pop()
                    if stream[0].at_eof() or stream[1].is_closing():
                        stream[1].close()
                        continue
                    try:
                        return await self._exchange(server, request, timeout, stream)
                    except FarServerProblem as problem:
                        # The other end may close at any time what has not been used for long.
                        if str(problem) != _NOTHING:
                            raise
                return await self._exchange(server, request, timeout, await self._connect(server))
        except TimeoutError:
            raise FarServerProblem("context deadline exceeded") from None
        except OSError as error:
            raise FarServerProblem(str(error)) from None

    async def _exchange(self, server: FarServer, request: Request, timeout: float, stream: _Stream) -> Response:
        reader, writer = stream
        keep = False
        try:
            head = await _answer(reader, writer, server, request, timeout)
            body = await _whole(head, reader)
            # Only where the end of the answer is certain.
            keep = (
                server.kept
                and bool(head.value("content-length"))
                and not head.value("transfer-encoding")
                and head.value("connection").lower() != "close"
            )
            return Response(head.status, body, head.without(_HOP_BY_HOP))
        finally:
            if keep:
                self._keep(server, stream)
            else:
                writer.close()

    def _keep(self, server: FarServer, stream: _Stream) -> None:
        idle = self._idle.setdefault(server, [])
        self._idle.move_to_end(server)
        idle.append(stream)
        excess = [idle.pop(0)] if len(idle) > _MOST_IDLE else []
        if len(self._idle) > _MOST_SERVERS:
            excess += self._idle.popitem(last=False)[1]
        for _, writer in excess:
            writer.close()

    async def _connect(self, server: FarServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            if server.plain:
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    return await asyncio.open_connection(server.host, server.port)
            shown = self._certificate() if server.as_proxy and self._certificate is not None else None
            tls = self._tls(server.authority, server.insecure, shown or server.certificate)
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                return await tls.open(server.host, server.port, server.name)
        except (ServerCertificateError, ValueError) as error:
            raise FarServerProblem(str(error)) from None
        except ssl.SSLError as error:
            raise FarServerProblem(f"tls: {error.reason or error}") from None
        except TimeoutError:
            raise FarServerProblem(f"dial tcp {_shown(server)}: i/o timeout") from None
        except OSError as error:
            why = f"connect: {os.strerror(error.errno).lower()}" if error.errno and error.errno > 0 else str(error)
            raise FarServerProblem(f"dial tcp {_shown(server)}: {why}") from None


def _shown(server: FarServer) -> str:
    return f"[{server.host}]:{server.port}" if ":" in server.host else f"{server.host}:{server.port}"


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    server: FarServer,
    request: Request,
    timeout: float,
    upgrade: bool = False,
) -> Head:
    writer.write(encoded(request, server.address, keep=server.kept))
    try:
        async with asyncio.timeout(timeout):
            return await read_head(reader, upgrade)
    except TimeoutError:
        raise FarServerProblem("net/http: timeout awaiting response headers") from None
    except OSError:
        raise FarServerProblem(_NOTHING) from None


async def _whole(head: Head, reader: asyncio.StreamReader) -> bytes:
    found = bytearray()
    async for piece in body_of(head, reader):
        found += piece
        if len(found) > _LONGEST:
            raise FarServerProblem("http: response body too large")
    return bytes(found)


def _tls_client(
    clock: Clock, authority: bytes, insecure: bool, certificate: Path | tuple[bytes, bytes] | None
) -> TlsClient:
    return TlsClient(None if insecure else Trust(clock, authority), certificate)
