"""Encodes responses, without I/O: heads, blocks of a suitable size, chunks, gzip."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.meta.times import http_date
from setpoint.wire.message import Request, Response

GZIP_THRESHOLD: Final = 128 * 1024
GZIP_LEVEL: Final = 1
"""The fastest level: higher ones cost much more time than they save bytes of JSON."""
BLOCK: Final = 64 * 1024
"""Size in bytes from which pieces are written without being joined with others."""
LARGE: Final = 128 * 1024
"""Size in bytes of the longest single write. TLS encrypts a write at once, into memory: a slow client must not hold a
copy of a whole response."""
LAST_CHUNK: Final = b"0\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
# The spelling of Go's net/http, which differs between versions of Python.
_STATUS_LINES[413] = "HTTP/1.1 413 Request Entity Too Large\r\n"
_STATUS_LINES[422] = "HTTP/1.1 422 Unprocessable Entity\r\n"


class DateHeader:
    """The Date header line, made once a second."""

    __slots__ = ("_clock", "_line", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._line = ""

    def line(self, monotonic: float) -> str:
        if monotonic >= self._until:
            now = self._clock.now()
            self._line = f"Date: {http_date(now)}\r\n"
            self._until = monotonic + 1.0 - now.microsecond / 1e6
        return self._line


def status_line(status: int) -> str:
    return _STATUS_LINES.get(status) or f"HTTP/1.1 {status} status code {status}\r\n"


def header_lines(headers: Sequence[tuple[str, str]]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        # A line break in a value would let the author of the value add headers, or a second response.
        lines = "".join([f"{_one_line(name)}: {_one_line(value)}\r\n" for name, value in headers])
    return lines


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")


def head(status: int, own: str, *lines: str) -> bytes:
    """Return a complete head: the status line, the response's `own` header lines, then `lines`."""
    return f"{status_line(status)}{own}{''.join(lines)}\r\n".encode("utf-8", "replace")


def without_framing(headers: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers without those that delimit the body: the connection writes them, and two of them could
    contradict each other."""
    return [(name, value) for name, value in headers if name.lower() not in ("content-length", "transfer-encoding")]


def has_connection_close(lowered: str) -> bool:
    """Return whether header lines, in lower case, end the connection."""
    return "\nconnection: close" in lowered or lowered.startswith("connection: close")


def bodyless(status: int) -> bool:
    """Return whether responses with this status have no body."""
    return status == 204 or status == 304 or status < 200


def accepts_gzip(request: Request, response: Response, size: int) -> bool:
    if size <= GZIP_THRESHOLD or bodyless(response.status):
        return False
    accepted = request.headers.get("accept-encoding")
    if accepted is None or not any(token.strip(" \t") == "gzip" for token in accepted.split(",")):
        return False
    return not any(name.lower() == "content-encoding" for name, _ in response.headers)


def blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about BLOCK to LARGE: each costs a system call, and at least a TLS record."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        length = len(piece)
        if length >= BLOCK:
            if held:
                yield b"".join(held)
                held, size = [], 0
            if length <= LARGE:
                yield piece
            else:
                for start in range(0, length, LARGE):
                    yield piece[start : start + LARGE]
            continue
        held.append(piece)
        size += length
        if size >= BLOCK:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield compressed pieces, possibly empty ones, one for about every BLOCK of input: the caller may pause between
    them."""
    compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for block in blocks(pieces):
        view = memoryview(block)
        for start in range(0, len(block), BLOCK):
            yield compressor.compress(view[start : start + BLOCK])
    yield compressor.flush()


def decode_chunks(chunks: bytes) -> bytes:
    """Return the data inside of complete chunks, for a reader that does not know chunks."""
    out: list[bytes] = []
    at = 0
    while at < len(chunks):
        line_end = chunks.index(b"\r\n", at)
        size = int(chunks[at:line_end], 16)
        out.append(chunks[line_end + 2 : line_end + 2 + size])
        at = line_end + 4 + size
    return b"".join(out)


def plain_error(request: Request | None, status: int, text: str) -> Response:
    """Return a short response in plain text: the default for errors that the connection itself reports."""
    title = status_line(status)[9:-2]
    body = f"{title}: {text}" if text else title
    return Response(status, body.encode(), [("Content-Type", "text/plain; charset=utf-8")])
