"""Forwards requests to other servers, as a proxy does, and their responses to the client.

What another server answers is not trusted: redirects are returned and never followed, an upgrade counts only if it was
offered and is answered with 101, and after anything else the connection is closed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from setpoint.tasks import first_completed
from setpoint.wire.client_connection import ClientConnection
from setpoint.wire.http_exchange import Exchange, encode_request
from setpoint.wire.message import RawConnection, Request, Response, StreamResponse, StreamWriter, UpgradeResponse
from setpoint.wire.upgraded import bridge

_HOP_BY_HOP: Final = frozenset(("connection", "keep-alive", "transfer-encoding", "content-length"))
_NOT_FORWARDED: Final = frozenset(("host", "content-length", "transfer-encoding", "connection"))
_MAX_BUFFERED: Final = 1024 * 1024
"""Bytes that a client may be behind before the other server has to wait."""


class BodyTooLong(Exception):
    """A whole response is longer than the caller accepts."""


def send(connection: ClientConnection, request: Request, host: str, *, keep_alive: bool = False) -> Exchange:
    """Send a request; the connection stays open after the response only if `keep_alive` is true."""
    headers: list[tuple[str, str]] = []
    for name, value in request.headers.items():
        if name not in _NOT_FORWARDED:
            headers += [(name, each) for each in request.repeated.get(name) or [value]]
    upgrade = "upgrade" in request.headers
    if not keep_alive:
        headers.append(("connection", "upgrade" if upgrade else "close"))
    target = f"{request.path}?{request.query}" if request.query else request.path
    data = encode_request(request.method, target, host, headers, request.body)
    return connection.send(data, has_body=request.method != "HEAD", offers_upgrade=upgrade)


async def whole_response(connection: ClientConnection, exchange: Exchange, limit: int) -> Response:
    """Return a whole response, whose head has arrived. Raise ResponseLost, or BodyTooLong if the body is longer than
    `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    while piece := await connection.next_chunk(exchange):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise BodyTooLong
    return Response(exchange.status, b"".join(pieces), end_to_end_headers(exchange))


async def truncated_response(connection: ClientConnection, exchange: Exchange, limit: int) -> Response:
    """Return a response, whose head has arrived, with at most `limit` bytes of its body. Raise ResponseLost."""
    body = bytearray()
    while len(body) < limit and (piece := await connection.next_chunk(exchange)):
        body += piece
    return Response(exchange.status, bytes(body[:limit]), end_to_end_headers(exchange))


def streamed_response(connection: ClientConnection, exchange: Exchange) -> StreamResponse:
    """Return an answer that sends the body as it arrives; the connection is closed at its end."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while piece := await connection.next_chunk(exchange):
                yield piece
        finally:
            connection.abort()

    return StreamResponse(exchange.status, end_to_end_headers(exchange), stream_pieces(pieces()))


def upgrade_response(connection: ClientConnection, exchange: Exchange) -> UpgradeResponse:
    """Return an answer that connects the client with the upgraded connection."""

    async def run(client: RawConnection) -> None:
        await bridge(client, connection.upgraded())

    headers = [(name, value) for name, value in exchange.headers if name.lower() != "sec-websocket-extensions"]
    return UpgradeResponse(headers, run)


def end_to_end_headers(exchange: Exchange) -> list[tuple[str, str]]:
    """Return the headers that concern the client, without those of this connection."""
    return [(name, value) for name, value in exchange.headers if name.lower() not in _HOP_BY_HOP]


def stream_pieces(pieces: AsyncGenerator[bytes, None]) -> Callable[[StreamWriter], Awaitable[None]]:
    """Return the `run` of a StreamResponse that sends pieces as they come, at the pace of the client, until there are
    no more or the stream has to end."""

    async def run(writer: StreamWriter) -> None:
        await first_completed(_send_pieces(pieces, writer), writer.closed())

    return run


async def _send_pieces(pieces: AsyncGenerator[bytes, None], writer: StreamWriter) -> None:
    async with aclosing(pieces):
        async for piece in pieces:
            writer.write(piece)
            if writer.buffered > _MAX_BUFFERED:
                await writer.drained()
