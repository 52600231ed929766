"""One TCP connection to a port of a simulated Pod: HTTP requests come in as bytes, answers go out as bytes.

Simulated servers speak HTTP/1.1 and nothing else. A server of which it is known that it listens, but not what it
serves, accepts the connection and closes it at the first bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.node.runtime.network import Failure
from setpoint.node.runtime.web_messages import WebAnswer, WebRequest

_LONGEST_HEAD: Final = 64 * 1024
_LONGEST_BODY: Final = 4 * 1024 * 1024
_MOST_WAITING: Final = 2
"""Pieces that have been received and not been looked at: a client that sends more has to wait. One may be large."""

Deliver = Callable[[WebRequest], WebAnswer | Failure]


class ForwardedConnection:
    def __init__(self, port: int, deliver: Deliver, clock: Clock, write: Callable[[bytes], None]) -> None:
        self._port = port
        self._deliver = deliver
        self._clock = clock
        self._write = write
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
        self._buffer = bytearray()

    async def feed(self, data: bytes) -> None:
        """Take in what the client sends; empty: it sends no more."""
        await self._pieces.put(data)

    async def run(self) -> str:
        """Answer requests until the client or the server closes the connection, and return why it broke; empty if it
        did not."""
        while (head := await self._head()) is not None:
            if not head:
                return ""  # the client has closed it
            found = _parsed(bytes(head))
            if found is None:
                return self._answer(400, WebAnswer(400, "Bad Request"), close=True)
            method, target, headers, keeps = found
            size = _length(headers)
            if size is None or size > _LONGEST_BODY:
                status = 411 if size is None else 413
                return self._answer(status, WebAnswer(status, _phrase(status)), close=True)
            if headers.get("expect", "").lower() == "100-continue":
                self._write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not await self._filled(size):
                return ""
            body = bytes(self._buffer[:size])
            del self._buffer[:size]
            path, _, query = target.partition("?")
            answer = self._deliver(WebRequest(self._port, path or "/", query, method, body=body))
            if isinstance(answer, Failure):
                return f"read tcp4 127.0.0.1:{self._port}: read: {answer.value.lower()}"
            if answer.delay:
                await self._clock.sleep(answer.delay)
            self._answer(answer.status, answer, close=not keeps, bare=method == "HEAD")
            if not keeps:
                return ""
        return self._answer(431, WebAnswer(431, "Request Header Fields Too Large"), close=True)

    async def _head(self) -> bytes | None:
        """Return the head of the next request; empty if there is none, None if it has no end."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _LONGEST_HEAD:
                return None
            if not await self._filled(len(self._buffer) + 1):
                return b""
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head or b"\r\n"

    async def _filled(self, size: int) -> bool:
        while len(self._buffer) < size:
            piece = await self._pieces.get()
            if not piece:
                return False
            self._buffer += piece
        return True

    def _answer(self, status: int, answer: WebAnswer, *, close: bool, bare: bool = False) -> str:
        body = answer.body.encode("utf-8", "surrogateescape")
        lines = [
            f"HTTP/1.1 {status} {_phrase(status)}",
            f"Date: {self._clock.now():%a, %d %b %Y %H:%M:%S} GMT",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(body)}",
            *(["Connection: close"] if close else []),
        ]
        self._write("\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + (b"" if bare else body))
        return ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _parsed(head: bytes) -> tuple[str, str, Mapping[str, str], bool] | None:
    """Return method, target, headers, and whether the connection stays open; None if this is no HTTP request."""
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[0].isupper() or not words[2].startswith("HTTP/1."):
        return None
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    connection = headers.get("connection", "").lower()
    keeps = "close" not in connection and (words[2] == "HTTP/1.1" or "keep-alive" in connection)
    target = words[1]
    if target.startswith("http://"):
        target = "/" + target[len("http://") :].partition("/")[2]
    return words[0], target, headers, keeps


def _length(headers: Mapping[str, str]) -> int | None:
    """Return the size of the body; None if it is not said in advance."""
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
