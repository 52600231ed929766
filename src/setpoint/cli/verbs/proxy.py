"""`proxy`: serve the API server on a local port, without authentication.

Plain HTTP on this machine is forwarded to the API server with the user's credentials. Responses are streamed, so that
watches and logs work; upgraded connections are bridged.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncGenerator, Sequence
from html import escape
from http import HTTPStatus
from mimetypes import guess_type
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.client.sender import Sender
from setpoint.client.transport import Headers, Reply, StreamReply, Unreachable, UpgradingTransport, header
from setpoint.wire.forwarding import stream_pieces
from setpoint.wire.limits import Limits
from setpoint.wire.message import HttpAnswer, RawConnection, Request, Response, StreamResponse, UpgradeResponse
from setpoint.wire.server import Server
from setpoint.wire.upgraded import bridge

_LIMITS: Final = Limits(body=64 * 1024 * 1024, head=64 * 1024)
_CONNECTION_HEADERS = (
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "proxy-connection",
)
_NOT_FORWARDED = ("host", "authorization", "accept-encoding")


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

    async def handle(self, request: Request) -> HttpAnswer:
        try:
            return await self._answer(request)
        except _Bad as error:
            return _response(error.status, "text/plain; charset=utf-8", f"{error.text}\n".encode())

    async def _answer(self, request: Request) -> HttpAnswer:
        static = self._static is not None and request.path.startswith(self._static_prefix)
        api = request.path.startswith(self._api_prefix)
        if static and (not api or len(self._static_prefix) >= len(self._api_prefix)):
            assert self._static is not None
            return _file(self._static, unquote(request.path[len(self._static_prefix) :]), request.method)
        if not request.path.startswith("/"):
            raise _Bad(400)
        if not api:
            raise _Bad(404, "404 page not found")
        host = request.headers.get("host", "")
        host = host if host.endswith("]") else re.sub(r":\d+$", "", host)
        if self._filter is not None and not self._filter.accepts(request.method, unquote(request.path), host):
            raise _Bad(403)
        path = request.path
        if not self._api_prefix.startswith("/api"):
            path = "/" + path[len(self._api_prefix) :]
        try:
            if "upgrade" in request.headers:
                return await self._upgrade(request, path)
            headers = self._headers(request, *_CONNECTION_HEADERS, "upgrade")
            transport = self._sender.transport
            return _streamed(await transport.stream(request.method, path, request.query, headers, request.body))
        except Unreachable as error:
            raise _Bad(502, str(error)) from None
        except ValueError as error:
            raise _Bad(400, str(error)) from None

    def _headers(self, request: Request, *omitted: str) -> Headers:
        headers = [
            (name, each)
            for name, value in request.headers.items()
            if name not in (*_NOT_FORWARDED, *omitted)
            for each in request.repeated.get(name) or [value]
        ]
        who = self._sender.impersonate
        return [*headers, *(who.headers() if who is not None else ())]

    async def _upgrade(self, request: Request, path: str) -> HttpAnswer:
        transport = self._sender.transport
        if request.method != "GET" or not isinstance(transport, UpgradingTransport):
            raise _Bad(400, "only WebSockets can be handed on")
        answer = await transport.upgrade(path, request.query, self._headers(request))
        if isinstance(answer, Reply):
            return _response(answer.status, header(answer.headers, "content-type") or "text/plain", answer.body)

        async def run(client: RawConnection) -> None:
            await bridge(client, answer.connection)

        return UpgradeResponse(list(answer.headers), run)


def _streamed(stream: StreamReply) -> StreamResponse:
    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            async for piece in stream:
                yield piece
        finally:
            stream.close()

    omitted = (*_CONNECTION_HEADERS, "content-encoding")
    headers = [(name, value) for name, value in stream.headers if name not in omitted]
    return StreamResponse(stream.status, headers, stream_pieces(pieces()))


def _response(status: int, content_type: str, body: bytes) -> Response:
    return Response(status, body, [("content-type", content_type)])


def _file(base: Path, name: str, method: str) -> Response:
    """Return a file below `base`, never outside of it; for a directory its index, or a listing."""
    if method not in ("GET", "HEAD"):
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
            return _response(200, "text/html; charset=utf-8", listing)
        path = index
    content_type = guess_type(path.name)[0] or "application/octet-stream"
    try:
        return _response(200, content_type, path.read_bytes())
    except OSError:
        raise _Bad(403) from None


_PORT = 8001
_PATHS = "^.*"
_NOT_PATHS = "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach"
_HOSTS = r"^localhost$,^127\.0\.0\.1$,^\[::1\]$"
_NOT_METHODS = "^$"


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if flags.port != _PORT and flags.unix_socket:
        raise Failed("cannot set --unix-socket and --port at the same time")
    filter = (
        None
        if flags.disable_filter
        else Filter(
            *map(
                _patterns,
                (
                    flags.accept_paths,
                    flags.reject_paths,
                    flags.accept_hosts,
                    flags.reject_methods,
                ),
            )
        )
    )
    if filter is None and not flags.unix_socket:
        invocation.print_err("Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious")
    elif filter is not None and not (flags.reject_paths and flags.reject_methods):
        invocation.print_err(
            "Request filter has been relaxed, your proxy may be vulnerable to attacks, please be cautious"
        )
    static = _static(invocation)
    proxy = ApiProxy(invocation.client.sender, _slash(flags.api_prefix), filter, static, _slash(flags.www_prefix))
    http = Server(proxy.handle, clock=invocation.io.clock, limits=_LIMITS)
    server, where = await _listening(invocation, http)
    invocation.print(f"Starting to serve on {where}")
    invocation.flush()
    try:
        await asyncio.Event().wait()  # until Ctrl-C
    finally:
        server.close()
        await http.stop(0)


def _static(invocation: Invocation) -> Path | None:
    if not invocation.flags.www:
        return None
    found = Path(invocation.flags.www)
    if not found.exists():
        invocation.print_err(f"Failed to stat static file directory {found}: no such file or directory")
    elif not found.is_dir():
        invocation.print_err(f"Static file directory {found} is not a directory")
    return found


def _slash(prefix: str) -> str:
    return prefix if prefix.endswith("/") else f"{prefix}/"


def _patterns(typed_value: str) -> list[re.Pattern[str]]:
    try:
        return [re.compile(one) for one in typed_value.split(",")] if typed_value else []
    except re.error as error:
        raise Failed(f"Error compiling re: {error}: {typed_value}") from None


async def _listening(invocation: Invocation, http: Server) -> tuple[asyncio.Server, str]:
    flags, loop = invocation.flags, asyncio.get_running_loop()
    if flags.unix_socket:
        _cleared(flags.unix_socket)
        before = os.umask(0o077)  # accessible to its owner only
        try:
            server = await loop.create_unix_server(http.connection, flags.unix_socket)
        except OSError as error:
            raise Failed(f"listen unix {flags.unix_socket}: bind: {_why(error)}") from None
        finally:
            os.umask(before)
        return server, flags.unix_socket
    try:
        server = await loop.create_server(http.connection, flags.address, flags.port)
    except (OSError, OverflowError) as error:
        raise Failed(f"listen tcp {flags.address}:{flags.port}: bind: {_why(error)}") from None
    host, port, *_ = server.sockets[0].getsockname()
    return server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _why(error: Exception) -> str:
    """Return the system's own error message, without the additions of asyncio."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number).lower() if number is not None and number > 0 else str(error)


def _cleared(path: str) -> None:
    """Remove a stale socket; another file stays and is an error."""
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    except OSError:
        pass


COMMAND = Command(
    "Run a proxy to the Kubernetes API server",
    run,
    (
        text("www", "w", help="Also serve static files from the given directory under the specified prefix."),
        text("www-prefix", "P", default="/static/", help="Prefix to serve static files under."),
        text("api-prefix", default="/", help="Prefix to serve the proxied API under."),
        text("accept-paths", default=_PATHS, help="Regular expressions for paths that are handed on."),
        text("reject-paths", default=_NOT_PATHS, help="Regular expressions for paths that are refused all the same."),
        text("accept-hosts", default=_HOSTS, help="Regular expressions for hosts that may be asked for."),
        text("reject-methods", default=_NOT_METHODS, help="Regular expressions for HTTP methods that are refused."),
        number("port", "p", default=_PORT, help="The port on which to run the proxy. Set to 0 to pick a random port."),
        text("address", default="127.0.0.1", help="The IP address on which to serve on."),
        switch("disable-filter", help="Hand on everything. Dangerous: any page in a browser could use the cluster."),
        text("unix-socket", "u", help="Unix socket on which to run the proxy."),
        duration("keepalive", help="How often an idle connection is checked; accepted, the system decides."),
        switch("append-server-path", help="The path of the server's address goes before that of each request."),
    ),
    usage="[--port=PORT] [--www=static-dir] [--www-prefix=prefix] [--api-prefix=prefix]",
    about="Everyone who can reach the port has your permissions in the cluster. Runs until Ctrl-C.",
    examples="""
    # The API at localhost:8001
    setpoint proxy

    # On a port that is free, with a page beside it
    setpoint proxy --port=0 --www=./site

    # On a socket that only you can use
    setpoint proxy --unix-socket=/tmp/api.sock
    """,
)
