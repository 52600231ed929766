"""`proxy`: serve the API server on a local port, without authentication."""

from __future__ import annotations

import asyncio
import os
import re
import stat
from pathlib import Path

from setpoint.cli.api_proxy import LONGEST_HEAD, ApiProxy, Filter
from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration, number, switch, text
from setpoint.cli.invocation import Invocation

_PORT = 8001
_PATHS = "^.*"
_NOT_PATHS = "^/api/.*/pods/.*/exec,^/api/.*/pods/.*/attach"
_HOSTS = r"^localhost$,^127\.0\.0\.1$,^\[::1\]$"
_NOT_METHODS = "^$"


async def run(call: Invocation) -> None:
    flags = call.flags
    if flags.port != _PORT and flags.unix_socket:
        raise Failed("cannot set --unix-socket and --port at the same time")
    filter = None if flags.disable_filter else Filter(*map(_patterns, (
        flags.accept_paths, flags.reject_paths, flags.accept_hosts, flags.reject_methods,
    )))  # fmt: skip
    if filter is None and not flags.unix_socket:
        call.print_err("Request filter disabled, your proxy is vulnerable to XSRF attacks, please be cautious")
    elif filter is not None and not (flags.reject_paths and flags.reject_methods):
        call.print_err("Request filter has been relaxed, your proxy may be vulnerable to attacks, please be cautious")
    static = _static(call)
    proxy = ApiProxy(call.client.sender, _slash(flags.api_prefix), filter, static, _slash(flags.www_prefix))
    server, where = await _listening(call, proxy)
    call.print(f"Starting to serve on {where}")
    call.flush()
    async with server:
        await server.serve_forever()


def _static(call: Invocation) -> Path | None:
    if not call.flags.www:
        return None
    found = Path(call.flags.www)
    if not found.exists():
        call.print_err(f"Failed to stat static file directory {found}: no such file or directory")
    elif not found.is_dir():
        call.print_err(f"Static file directory {found} is not a directory")
    return found


def _slash(prefix: str) -> str:
    return prefix if prefix.endswith("/") else f"{prefix}/"


def _patterns(typed_value: str) -> list[re.Pattern[str]]:
    try:
        return [re.compile(one) for one in typed_value.split(",")] if typed_value else []
    except re.error as error:
        raise Failed(f"Error compiling re: {error}: {typed_value}") from None


async def _listening(call: Invocation, proxy: ApiProxy) -> tuple[asyncio.Server, str]:
    flags = call.flags
    if flags.unix_socket:
        _cleared(flags.unix_socket)
        before = os.umask(0o077)  # accessible to its owner only
        try:
            server = await asyncio.start_unix_server(proxy.handle, flags.unix_socket, limit=LONGEST_HEAD)
        except OSError as error:
            raise Failed(f"listen unix {flags.unix_socket}: bind: {_why(error)}") from None
        finally:
            os.umask(before)
        return server, flags.unix_socket
    try:
        server = await asyncio.start_server(proxy.handle, flags.address, flags.port, limit=LONGEST_HEAD)
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
