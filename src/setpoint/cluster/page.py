"""Serves the page (`web/`): of a cluster in this process, or of any cluster through a client.

The page itself is loaded with the first request of a browser. Until then there is a listening socket and a code.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from setpoint.apiserver.error_responses import METHOD_NOT_ALLOWED
from setpoint.apiserver.request_context import RequestContext
from setpoint.client import Client
from setpoint.client.past import logical_transport
from setpoint.cluster.components import MASTERS
from setpoint.cluster.config import ConfigError
from setpoint.cluster.private_files import write_private
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Forbidden, MethodNotAllowed
from setpoint.system import SystemClock
from setpoint.web.sessions import CODE_LIFETIME, PageUser, Sessions
from setpoint.wire.limits import Limits
from setpoint.wire.listener import listen, listen_on_loopback
from setpoint.wire.message import Answer, Request, Response
from setpoint.wire.server import Server

if TYPE_CHECKING:
    from setpoint.cluster.allinone import RunningCluster
    from setpoint.web.server import PageExtensions, PageServer
    from setpoint.wire.loop_slices import LoopSlicer

log = logging.getLogger("setpoint.cluster")

DEFAULT_PORT: Final = 6444
CODES_PATH, SESSIONS_PATH = "/setpoint/v1/page/codes", "/setpoint/v1/page/sessions"
ADMINISTRATOR: Final = PageUser("kubernetes-admin", (MASTERS,))
_SESSIONS_FILE: Final = "page-sessions.json"
_PORT_FILE: Final = "page-port"
_FIRST_PORT: Final = 1024
"""The first port that is no privileged one."""
_AGENT: Final = "setpoint-page"
_STOP_TIMEOUT: Final = 0.5
"""Seconds that requests of browsers have to end when the server stops."""
LIMITS: Final = Limits(
    body=16 * 1024,
    head=32 * 1024,
    headers=100,
    path=8 * 1024,
    connections=512,
    head_timeout=5.0,
    body_timeout=5.0,
    idle_timeout=60.0,
)
"""The limits of the HTTP server of the page: its requests are small, and few connections are open at once."""
_TABS_OF_SEAT: Final = 4


def class_limits(seats: int) -> Limits:
    """Return the limits of a server that many learners share: each has the connections of a few tabs."""
    return LIMITS._replace(connections=LIMITS.connections + _TABS_OF_SEAT * seats)


class PageTerms(NamedTuple):
    """The terms of messages about the settings of a page: what is served, and the flags of the command."""

    what: str = "the page"
    certificate: str = "--page-tls-cert-file"
    key: str = "--page-tls-private-key-file"
    free_port: str = "--page-port 0"
    """The flag that picks a free port."""


_TERMS: Final = PageTerms()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageConfig:
    """The settings of the page."""

    port: int = DEFAULT_PORT
    """The port; 0 picks a free one."""
    may_use_other_port: bool = False
    """Whether a free port is picked if `port` is in use: the same one at each start, as far as it is free."""
    address: str = ""
    """The address to listen on, which needs TLS; empty means the loopback addresses."""
    hosts: Sequence[str] = ()
    """Further names, with or without a port, under which browsers reach the page."""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    terms: PageTerms = _TERMS
    files: Path | None = None
    """The directory with the built page; None means that of the package."""
    user: PageUser = ADMINISTRATOR
    """The user as whom sessions act."""
    extensions: Callable[[], PageExtensions] | None = None
    """Returns the additions of the command line when the first browser comes; None means none."""

    @property
    def is_tls(self) -> bool:
        return bool(self.tls_cert_file or self.tls_private_key_file)

    def check(self) -> None:
        """Check the settings before anything starts. Raises ConfigError."""
        if self.address and not self.is_tls and not _is_loopback(self.address):
            raise ConfigError(
                f"{self.terms.what} on {self.address} can be reached from other machines, so it needs TLS: set "
                f"{self.terms.certificate} and {self.terms.key}"
            )


@dataclass(slots=True)
class RunningPage:
    """A page that is served, and its sessions."""

    url: str
    """The address without a code, and without a slash at its end."""
    port: int
    user: PageUser
    sessions: Sessions

    def new_link(self) -> str:
        """Return a link that lets one browser in."""
        return f"{self.url}/#{self.sessions.new_code(self.user)}"


class _SessionFile:
    """The file with the sessions, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        try:
            write_private(self._path, data)
        except OSError as error:  # sessions then end with the process
            log.warning("cannot write %s: %s", self._path, error.strerror)


class _LazyPage:
    """The handler of the HTTP server, which builds the page when a browser comes."""

    def __init__(self, build: Callable[[], PageServer]) -> None:
        self._build = build
        self._page: PageServer | None = None

    async def handle(self, request: Request) -> Answer:
        return await self._built().handle(request)

    def unexpected(self, request: Request | None, status: int, text: str) -> Response:
        return self._built().unexpected(request, status, text)

    async def stop(self) -> None:
        if self._page is not None:
            await self._page.stop()

    def _built(self) -> PageServer:
        if self._page is None:
            self._page = self._build()
        return self._page


@asynccontextmanager
async def page(
    config: PageConfig,
    clock: Clock,
    client: Callable[[PageUser], Client],
    data_dir: Path | None = None,
    slicer: LoopSlicer | None = None,
) -> AsyncIterator[RunningPage]:
    """Serve the page while the block runs. `client` returns a client with the rights of a user. Sessions outlive the
    process if there is a data directory. `slicer` divides the work of the loop between all its servers. Raises
    ConfigError."""
    config.check()
    tls = page_tls(config)
    record = data_dir / _PORT_FILE if data_dir is not None and config.port and config.may_use_other_port else None
    before = _recorded_port(record)
    sockets = await listening(config, before)
    port = sockets[0].getsockname()[1]
    if record is not None and port not in (config.port, before):
        _record_port(record, port)
    file = _SessionFile(data_dir / _SESSIONS_FILE) if data_dir is not None else None
    sessions = Sessions(clock, os.urandom, file, lambda user: user == config.user)
    hosts = page_hosts(config, port)

    def build() -> PageServer:
        from setpoint.web.server import PageExtensions, PageOptions, PageServer  # no browser may ever come
        from setpoint.web.static_files import STATIC

        def logical_client(user: PageUser, cluster: str) -> Client:
            found = client(user)
            if not cluster:
                return found
            sender = found.sender
            return Client(logical_transport(sender.transport, cluster), clock, impersonate=sender.impersonate)

        options = PageOptions(
            clock=clock,
            entropy=os.urandom,
            client=logical_client,
            hosts=hosts,
            tls=tls is not None,
            files=config.files or STATIC,
            extensions=config.extensions() if config.extensions is not None else PageExtensions(),
        )
        return PageServer(options, sessions)

    lazy = _LazyPage(build)
    server = Server(lazy.handle, clock=clock, limits=LIMITS, slicer=slicer, ssl=tls, on_error=lazy.unexpected)
    server.serve(sockets)
    try:
        yield RunningPage(f"{'https' if tls is not None else 'http'}://{hosts[0]}", port, config.user, sessions)
    finally:
        await server.stop(_STOP_TIMEOUT)
        await lazy.stop()


@asynccontextmanager
async def cluster_page(config: PageConfig, running: RunningCluster, data_dir: Path) -> AsyncIterator[RunningPage]:
    """Serve the page of a cluster in this process. Its API server gives administrators new links. Raises
    ConfigError."""
    clients = running.components.clients

    def client(user: PageUser) -> Client:
        return clients.copying_client(user.name, user.groups, agent=_AGENT)

    api = running.apiserver.api
    async with page(config, SystemClock(), client, data_dir, api.resources.slicer) as served:
        endpoints = _Endpoints(served)
        api.serve_path(CODES_PATH, endpoints.codes)
        api.serve_path(SESSIONS_PATH, endpoints.sessions)
        yield served


class _Endpoints:
    """The paths of the API server with which `setpoint page` gets links and ends sessions."""

    def __init__(self, page: RunningPage) -> None:
        self._page = page

    async def codes(self, ctx: RequestContext) -> Answer:
        """Answer POST with a link for one browser."""
        _check(ctx, "POST")
        found = {"link": self._page.new_link(), "expiresInSeconds": int(CODE_LIFETIME.total_seconds())}
        return Response(201, orjson.dumps(found), [("Content-Type", "application/json"), ("Cache-Control", "no-store")])

    async def sessions(self, ctx: RequestContext) -> Answer:
        """Answer DELETE with the number of sessions that were ended: all of them."""
        _check(ctx, "DELETE")
        found = {"ended": self._page.sessions.revoke()}
        return Response(200, orjson.dumps(found), [("Content-Type", "application/json")])


def _check(ctx: RequestContext, method: str) -> None:
    """Check the method and the user. Roles may grant the path to others, but a link has the rights of its user."""
    if MASTERS not in ctx.user.groups:
        raise Forbidden(f"only members of {MASTERS} get links to the page")
    if ctx.request.method != method:
        raise MethodNotAllowed(METHOD_NOT_ALLOWED, details={})


def page_tls(config: PageConfig) -> ssl.SSLContext | None:
    """Return the TLS side of the server; None without TLS. Raises ConfigError."""
    if not config.is_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.tls_cert_file, config.tls_private_key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use {config.terms.certificate} {config.tls_cert_file} and {config.terms.key} "
            f"{config.tls_private_key_file}: {error.strerror or error}"
        ) from None
    return context


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False


def _recorded_port(path: Path | None) -> int:
    """Return the port that was picked before; 0 if none was."""
    try:
        text = path.read_bytes().strip() if path is not None else b""
    except OSError:
        return 0
    port = int(text) if text.isdigit() and len(text) <= 5 else 0
    return port if _FIRST_PORT <= port < 1 << 16 else 0


def _record_port(path: Path, port: int) -> None:
    """Record the port: a browser knows the page, and its session, by its address."""
    try:
        write_private(path, b"%d\n" % port)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)


async def listening(config: PageConfig, other_port: int = 0) -> list[socket.socket]:
    """Return the listening sockets. If another port may be used, `other_port` comes first, unless it is 0. Raises
    ConfigError."""
    try:
        if config.address:
            return await listen(config.address, config.port)
        try:
            return listen_on_loopback(config.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not config.may_use_other_port:
                raise
            if other_port:
                with suppress(OSError):
                    return listen_on_loopback(other_port)
            return listen_on_loopback(0)
    except OSError as error:
        where = f"{config.address or '127.0.0.1'}:{config.port}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"{config.terms.what} cannot use port {config.port}, because another program does; choose another one: "
                f"{config.terms.free_port} picks a free one"
            ) from None
        raise ConfigError(f"{config.terms.what} cannot listen on {where}: {error.strerror or error}") from None


def page_hosts(config: PageConfig, port: int) -> list[str]:
    """Return the values that the Host header may have, the one for links first."""
    names = ["127.0.0.1", "localhost", "[::1]"]
    if config.address:
        shown = f"[{config.address}]" if ":" in config.address else config.address
        names = [shown] if not _is_anywhere(config.address) else names
    own = [name if name.rpartition(":")[2].isdigit() and name[-1] != "]" else f"{name}:{port}" for name in config.hosts]
    default = 443 if config.is_tls else 80
    found = [*own, *(f"{name}:{port}" for name in names)]
    # Browsers leave out the default port of the scheme.
    found += [each.rpartition(":")[0] for each in found if each.endswith(f":{default}")]
    return [*dict.fromkeys(found)]


def _is_anywhere(address: str) -> bool:
    try:
        return ip_address(address).is_unspecified
    except ValueError:
        return False
