"""The server behind `proxy`: plain HTTP on this machine, forwarded to the API server with the user's credentials.

Responses are streamed, so that watches and logs work; upgraded connections become tunnels.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from html import escape
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from setpoint.client.sender import Sender
from setpoint.client.transport import Headers, Reply, Unreachable, UpgradingTransport, header

LONGEST_HEAD: Final = 64 * 1024
LONGEST_BODY: Final = 64 * 1024 * 1024
_PIECE: Final = 64 * 1024
_OURS = ("connection", "keep-alive", "te", "trailer", "transfer-encoding", "content-length", "proxy-connection")
_NOT_THEIRS = ("host", "authorization", "accept-encoding")
_HOP = ("upgrade",)
_PHRASES: Final = {one.value: one.phrase for one in HTTPStatus}


class Filter(NamedTuple):
    """Selects the requests to forward, because other users of this machine and pages in a browser can send requests
    too."""

    accept_paths: Sequence[re.Pattern[str]]
    reject_paths: Sequence[re.Pattern[str]]
    accept_hosts: Sequence[re.Pattern[str]]
    reject_methods: Sequence[re.Pattern[str]]

    def accepts(self, method: str, path: str, host: str) -> bool:
        def matches(text: str, patterns: Sequence[re.Pattern[str]]) -> bool:
            return any(pattern.search(text) for pattern in patterns)

        if matches(path, self.reject_paths) or matches(method, self.reject_methods):
            return False
        return matches(path, self.accept_paths) and matches(host, self.accept_hosts)


class _Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: Headers


class _Bad(Exception):
    """An invalid request, with the status and the text of the response."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text or HTTPStatus(status).phrase


class ApiProxy:
    def __init__(
        self, sender: Sender, api_prefix: str, filter: Filter | None, static: Path | None, static_prefix: str
    ) -> None:
        """Create the proxy; prefixes end with a slash."""
        self._sender = sender
        self._api_prefix = api_prefix
        self._filter = filter
        self._static = static
        self._static_prefix = static_prefix

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed."""
        try:
            while True:
                try:
                    request = await _request(reader)
                    if request is None:
                        return
                    body = await _body(reader, request)
                    goes_on = await self._answer(request, body, reader, writer)
                except _Bad as error:
                    _whole(writer, error.status, "text/plain; charset=utf-8", f"{error.text}\n".encode())
                    goes_on = False
                await writer.drain()
                if not goes_on or header(request.headers if request else (), "connection").lower() == "close":
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has disconnected
        finally:
            writer.close()

    async def _answer(
        self, request: _Request, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        static = self._static is not None and request.path.startswith(self._static_prefix)
        api = request.path.startswith(self._api_prefix)
        if static and (not api or len(self._static_prefix) >= len(self._api_prefix)):
            assert self._static is not None
            _file(writer, self._static, unquote(request.path[len(self._static_prefix) :]), request)
            return True
        if not api:
            raise _Bad(404, "404 page not found")
        host = header(request.headers, "host")
        host = host if host.endswith("]") else re.sub(r":\d+$", "", host)
        if self._filter is not None and not self._filter.accepts(request.method, unquote(request.path), host):
            raise _Bad(403)
        path = request.path
        if not self._api_prefix.startswith("/api"):
            path = "/" + path[len(self._api_prefix) :]
        try:
            if header(request.headers, "upgrade"):
                await self._tunnel(request, path, reader, writer)
                return False
            return await self._hand_on(request, path, body, writer)
        except Unreachable as error:
            raise _Bad(502, str(error)) from None
        except ValueError as error:
            raise _Bad(400, str(error)) from None

    def _headers(self, request: _Request, *but: str) -> Headers:
        kept = [(name, value) for name, value in request.headers if name not in (*_NOT_THEIRS, *but)]
        who = self._sender.impersonate
        return [*kept, *(who.headers() if who is not None else ())]

    async def _hand_on(self, request: _Request, path: str, body: bytes, writer: asyncio.StreamWriter) -> bool:
        headers = self._headers(request, *_OURS, *_HOP)
        stream = await self._sender.transport.stream(request.method, path, request.query, headers, body)
        try:
            kept = [(name, value) for name, value in stream.headers if name not in (*_OURS, "content-encoding")]
            bare = request.method == "HEAD" or stream.status in (204, 304)
            length = header(stream.headers, "content-length")
            if bare:
                kept += [("content-length", length)] if length else []
            else:
                kept.append(("transfer-encoding", "chunked"))
            _head(writer, stream.status, kept)
            async for piece in stream:
                if piece and not bare:
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
            if not bare:
                writer.write(b"0\r\n\r\n")
        except Unreachable:
            return False  # the response is incomplete, and the client can detect that
        finally:
            stream.close()
        return True

    async def _tunnel(
        self, request: _Request, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        transport = self._sender.transport
        if request.method != "GET" or not isinstance(transport, UpgradingTransport):
            raise _Bad(400, "only WebSockets can be handed on")
        answer = await transport.upgrade(path, request.query, self._headers(request))
        if isinstance(answer, Reply):
            _whole(writer, answer.status, header(answer.headers, "content-type") or "text/plain", answer.body)
            return
        _head(writer, 101, answer.headers)
        tasks = [
            asyncio.ensure_future(_copied(reader, answer.writer)),
            asyncio.ensure_future(_copied(answer.reader, writer)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            answer.close()


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()


async def _request(reader: asyncio.StreamReader) -> _Request | None:
    """Read the next request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise _Bad(400) from None
        return None
    except asyncio.LimitOverrunError:
        raise _Bad(431) from None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise _Bad(400)
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise _Bad(400)
        headers.append((name.lower(), value.strip()))
    path, _, query = parts[1].partition("?")
    return _Request(parts[0], path, query, headers)


async def _body(reader: asyncio.StreamReader, request: _Request) -> bytes:
    length = header(request.headers, "content-length") or "0"
    if header(request.headers, "transfer-encoding"):
        return b"".join([piece async for piece in _chunks(reader)])
    if not (length.isascii() and length.isdigit()):
        raise _Bad(400)
    if int(length) > LONGEST_BODY:
        raise _Bad(413)
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    total = 0
    while True:
        try:
            size = int((await reader.readline()).split(b";")[0].strip(), 16)
        except ValueError:
            raise _Bad(400) from None
        total += size
        if size < 0 or total > LONGEST_BODY:
            raise _Bad(413)
        piece = await reader.readexactly(size)
        await reader.readline()
        if not size:
            return
        yield piece


def _head(writer: asyncio.StreamWriter, status: int, headers: Headers) -> None:
    phrase = _PHRASES.get(status, "Status")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    writer.write(f"HTTP/1.1 {status} {phrase}\r\n{lines}\r\n".encode())


def _whole(writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, *, bare: bool = False) -> None:
    _head(writer, status, [("content-type", kind), ("content-length", str(len(body)))])
    if not bare:
        writer.write(body)


def _file(writer: asyncio.StreamWriter, base: Path, name: str, request: _Request) -> None:
    """Serve a file below `base`, never outside of it; for a directory its index, or a listing."""
    if request.method not in ("GET", "HEAD"):
        raise _Bad(405)
    root = base.resolve()
    path = (root / name.replace("\0", "").lstrip("/")).resolve()
    if "\0" in name or not path.is_relative_to(root) or not path.exists():
        raise _Bad(404, "404 page not found")
    if path.is_dir():
        index = path / "index.html"
        if not index.is_file():
            names = sorted(f"{one.name}/" if one.is_dir() else one.name for one in path.iterdir())
            links = "".join(f'<a href="{quote(one)}">{escape(one)}</a>\n' for one in names)
            listing = f"<!doctype html>\n<pre>\n{links}</pre>\n".encode()
            _whole(writer, 200, "text/html; charset=utf-8", listing, bare=request.method == "HEAD")
            return
        path = index
    kind = guess_type(path.name)[0] or "application/octet-stream"
    try:
        data = path.read_bytes()
    except OSError:
        raise _Bad(403) from None
    _whole(writer, 200, kind, data, bare=request.method == "HEAD")
