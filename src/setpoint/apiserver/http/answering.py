"""A whole answer onto a connection, as fast as the client takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from setpoint.apiserver.http import encoding
from setpoint.apiserver.http.message import Request, Response
from setpoint.apiserver.listing import Listing

if TYPE_CHECKING:
    from setpoint.apiserver.http.connection import Connection

# Up to here head and body are copied into one write.
SMALL: Final = 64 * 1024


async def respond(connection: Connection, response: Response, request: Request, http10: bool, keep: bool) -> bool:
    """Write it all; False when the connection must end with it."""
    outgoing, status, body = connection.outgoing, response.status, response.body
    pieces = (body,) if isinstance(body, bytes) else body
    size = len(body) if isinstance(body, bytes) else body.size if isinstance(body, Listing) else sum(map(len, body))
    own = encoding.header_lines(response.headers)
    lowered = own.lower()
    # The looking is cheap and nearly never finds anything.
    if "content-length:" in lowered or "transfer-encoding:" in lowered:
        own = encoding.header_lines(encoding.without_framing(response.headers))
    ending = ""
    if "connection: close" in lowered and encoding.says_close(lowered):
        keep = False
    elif not keep:
        ending = "Connection: close\r\n"
    elif http10:
        ending = "Connection: keep-alive\r\n"
    date = connection.owner.date.line(connection.owner.clock.monotonic())
    if size > encoding.GZIP_THRESHOLD and not http10 and encoding.wants_gzip(request, response, size):
        lines = "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\nTransfer-Encoding: chunked\r\n"
        outgoing.send(encoding.head(status, own, date, lines, ending))
        if request.method != "HEAD":
            await _send_gzipped(connection, pieces)
        return keep
    length = "" if encoding.bodyless(status) else f"Content-Length: {size}\r\n"
    head = encoding.head(status, own, date, length, ending)
    if not length or request.method == "HEAD":
        outgoing.send(head)
    elif size <= SMALL:
        outgoing.send(b"".join((head, *pieces)))
    else:
        outgoing.send(head)
        for block in encoding.blocks(pieces):
            if outgoing.behind:
                await outgoing.drained(connection.loop)
            outgoing.pass_on(block)
    return keep


async def _send_gzipped(connection: Connection, pieces: Iterable[bytes]) -> None:
    outgoing = connection.outgoing
    for piece in encoding.gzipped(pieces):
        if piece:
            outgoing.pass_on(b"%x\r\n%b\r\n" % (len(piece), piece))
        if outgoing.behind:
            await outgoing.drained(connection.loop)
        else:
            await asyncio.sleep(0)  # compressing takes a while: others have their turn between two pieces
        if connection.lost:
            return
    outgoing.send(encoding.LAST_CHUNK)
