"""Client-side load balancing: a component uses any API server of its cluster, and another one when that fails.

The servers are those that the EndpointSlices of the Service `kubernetes` list. The server of the kubeconfig is always
a candidate too, so that an outdated list does no harm. The list is kept in a file, so that a component can start while
the server of its kubeconfig is down.

All connections go directly to one server at a time, and stay with it while it is ready. Servers are chosen at random,
except that a server on this machine is preferred. A server in use is probed at `/readyz`. If it does not answer while
another one does, its connections are closed at once, so that requests and watches move to the other one. If it is not
ready, or is no longer listed, it gets no new requests, and the rest is closed after a grace period.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakSet

from setpoint.client import Client, Unreachable
from setpoint.client.dialing import ServerAddress, is_ip_address
from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.private_files import write_private
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.tasks import run_all
from setpoint.wire.client_connection import ClientConnection

log = logging.getLogger("setpoint.cluster")

SERVER_LIST = "servers.json"
"""Name of the file with the list, in the data directory."""
_SLICES = builtin("endpointslices", "discovery.k8s.io")
_OF_SERVICE = "kubernetes.io/service-name=kubernetes"
_NAMESPACE = "default"
_MAX_SERVERS: Final = 32
_MAX_FILE_BYTES: Final = 64 * 1024
CHECK_INTERVAL: Final = 2.0
_PROBE_TIMEOUT: Final = 3.0
GRACE: Final = 10.0
"""Seconds for which requests and watches may continue on a server that is not ready, or is no longer listed."""
_RETRY_INTERVAL: Final = 2.0
_REFUSED_INTERVAL: Final = 60.0
"""Seconds until the list is requested again after the server has refused it."""

Probe = Callable[[ServerAddress], Awaitable[bool]]
"""Returns whether a server is ready. Raises Unreachable if it does not answer."""


@dataclass(slots=True, eq=False)
class _Server:
    address: ServerAddress
    failed: bool = False
    """Whether the last connection or probe failed."""
    connections: WeakSet[ClientConnection] = field(default_factory=WeakSet)
    closes_at: float | None = None
    """When its connections are closed; None if it may be used."""

    @property
    def in_use(self) -> bool:
        return any(not connection.lost for connection in self.connections)

    def retire(self, closes_at: float | None = None) -> None:
        """Use no connection for another request, and close all at `closes_at` unless it is None."""
        if self.closes_at is None:
            self.closes_at = closes_at
        for connection in list(self.connections):
            connection.retire()

    def close(self) -> None:
        for connection in list(self.connections):
            connection.abort()
        self.connections.clear()
        self.closes_at = None


class LoadBalancer:
    """A ServerChoice."""

    def __init__(
        self, access: Access, clock: Clock, ids: Ids, *, file: Path | None = None, probe: Probe | None = None
    ) -> None:
        """`access` names the given server. `file` keeps the list; None means that it is not kept. `probe` replaces the
        request to `/readyz`."""
        url = urlsplit(access.server)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
        self._given = _Server(ServerAddress(host, port))
        self._given_is_local = _is_local(host)
        self._clock = clock
        self._ids = ids
        self._file = file
        self._readiness = _Readiness(access, clock)
        self._probe = probe or self._readiness.probe
        self._listed: dict[ServerAddress, _Server] = {}
        """The servers of the list, in random order."""
        self._left: list[_Server] = []
        """Servers that are no longer listed, and still have connections."""
        self._current: _Server | None = None
        """The server of new connections; None if none is known to work."""
        self._several = False
        """Whether the cluster has, or had, several servers. One that is alone is not probed."""
        self._load()

    async def close(self) -> None:
        """Close the connections for probes."""
        await self._readiness.close()

    # -- ServerChoice --------------------------------------------------------------------------------------------------

    def candidates(self) -> Sequence[ServerAddress]:
        return [server.address for server in self._ordered()]

    def connected(self, server: ServerAddress, connection: ClientConnection) -> None:
        chosen = self._find(server)
        if chosen is None:
            chosen = _Server(server, closes_at=self._clock.monotonic() + GRACE)
            self._left.append(chosen)
        else:
            self._use(chosen)
        chosen.failed = False
        chosen.connections.add(connection)

    def failed(self, server: ServerAddress) -> None:
        found = self._find(server)
        if found is not None:
            found.failed = True
            if self._current is found:
                self._current = None

    # -- the list ------------------------------------------------------------------------------------------------------

    async def follow(self, client: Client) -> None:
        """Keep the list up to date. Never returns."""
        reported = ""
        while True:
            pause = _RETRY_INTERVAL
            try:
                await self._follow_once(client)
            except Unreachable:
                pass  # the next attempt may reach another server
            except ApiError as error:
                if str(error) != reported:
                    reported = str(error)
                    log.info("the list of API servers is not available: %s", reported)
                pause = _REFUSED_INTERVAL if error.code in (401, 403, 404) else _RETRY_INTERVAL
            await self._clock.sleep(pause)

    async def _follow_once(self, client: Client) -> None:
        found = await client.list(_SLICES, _NAMESPACE, label_selector=_OF_SERVICE)
        slices: dict[str, Obj] = {each["metadata"]["name"]: each for each in found.items}
        self.update(addresses_of(slices.values()))
        watch = client.watch(
            _SLICES, _NAMESPACE, label_selector=_OF_SERVICE, resource_version=found.resource_version, bookmarks=False
        )
        async with watch:
            async for kind, changed in watch:
                slices.pop(changed["metadata"]["name"], None)
                if kind != "DELETED":
                    slices[changed["metadata"]["name"]] = changed
                self.update(addresses_of(slices.values()))

    def update(self, addresses: Iterable[ServerAddress]) -> None:
        """Replace the list. An empty one is ignored: the servers that were known are a better guess than none."""
        listed = dict.fromkeys(addresses)
        if not listed or listed.keys() == self._listed.keys():
            return
        closes_at = self._clock.monotonic() + GRACE
        for address in self._listed.keys() - listed.keys() - {self._given.address}:
            server = self._listed[address]
            server.retire(closes_at)
            self._left.append(server)
            if self._current is server:
                self._current = None
        self._set(listed)
        if len(self._listed) > 1 and self._current is self._given and not self._given_is_local:
            self._use(None)  # spread the components over the servers
        self._save()

    def _set(self, listed: Iterable[ServerAddress]) -> None:
        """Keep the order of known servers, and insert the others at random positions."""
        wanted = list(listed)[:_MAX_SERVERS]
        known = [address for address in self._listed if address in wanted]
        for address in wanted:
            if address not in known:
                known.insert(self._ids.below(len(known) + 1), address)
        self._listed = {address: self._find(address) or _Server(address) for address in known}
        self._several |= len(known) > 1

    def _load(self) -> None:
        if self._file is None:
            return
        try:
            with self._file.open("rb") as file:
                found = json.loads(file.read(_MAX_FILE_BYTES))
            listed = [ServerAddress(str(host), int(port)) for host, port in found]
            self._set(each for each in listed if is_ip_address(each.host) and 0 < each.port < 65536)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError) as error:
            log.warning("ignoring the list of API servers in %s: %s", self._file, error)

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            write_private(self._file, json.dumps(list(self._listed)).encode() + b"\n")
        except FileExistsError:
            pass  # another component writes the same list
        except OSError as error:
            log.warning("cannot write the list of API servers to %s: %s", self._file, error.strerror)

    # -- health --------------------------------------------------------------------------------------------------------

    async def check_forever(self) -> None:
        while True:
            await self._clock.sleep(CHECK_INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Probe the servers in use, and leave those that are not ready if another one is."""
        self._close_due()
        if self._several:
            await run_all(*(self._check(server) for server in self._all() if server.in_use))
            if self._given_is_local and self._current not in (None, self._given) and await self._state(self._given):
                self._use(self._given)

    async def _check(self, server: _Server) -> None:
        state = await self._state(server)
        if state:
            server.failed, server.closes_at = False, None
            return
        others = [other for other in self._ordered() if other is not server]
        states = await run_all(*(self._state(other) for other in others))
        ready = [other for other, is_ready in zip(others, states, strict=True) if is_ready]
        if not ready:
            return
        if state is None:
            log.warning("the API server %s does not answer", server.address)
            server.close()
        else:
            if server.closes_at is None:
                log.warning("the API server %s is not ready", server.address)
            server.retire(self._clock.monotonic() + GRACE)
        server.failed = True
        if self._current is server or self._current is None:
            self._use(ready[0])

    async def _state(self, server: _Server) -> bool | None:
        """Return whether the server is ready; None if it does not answer."""
        try:
            return await self._probe(server.address)
        except Unreachable:
            return None

    def _close_due(self) -> None:
        now = self._clock.monotonic()
        for server in (*self._all(), *self._left):
            if server.closes_at is not None and server.closes_at <= now:
                server.close()
        self._left = [server for server in self._left if server.in_use]

    # -- servers -------------------------------------------------------------------------------------------------------

    def _use(self, server: _Server | None) -> None:
        """Make new connections to this server, or to any if it is None, and use those to the previous one no longer."""
        previous, self._current = self._current, server
        if previous is not server:
            if server is not None:
                log.info("using the API server %s", server.address)
            if previous is not None:
                previous.retire()

    def _ordered(self) -> list[_Server]:
        """Return all servers, the best first."""
        servers = self._all()
        if self._given_is_local or len(self._listed) < 2:
            servers.insert(0, servers.pop())
        return sorted(servers, key=lambda server: (server is not self._current, server.failed))

    def _all(self) -> list[_Server]:
        """Return the listed servers, and after them the given one."""
        servers = [server for server in self._listed.values() if server is not self._given]
        return [*servers, self._given]

    def _find(self, address: ServerAddress) -> _Server | None:
        return self._given if address == self._given.address else self._listed.get(address)


class _Readiness:
    """Requests `/readyz`, over one connection to each server."""

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._transports: dict[ServerAddress, HttpsTransport] = {}

    async def probe(self, server: ServerAddress) -> bool:
        transport = self._transports.get(server)
        if transport is None:
            if len(self._transports) > _MAX_SERVERS:
                await self._transports.pop(next(iter(self._transports))).close()
            transport = self._transports[server] = HttpsTransport(
                self._access, self._clock, timeout=_PROBE_TIMEOUT, servers=_Single(server)
            )
        reply = await transport.request("GET", "/readyz", "", (("user-agent", "setpoint"),), b"")
        return reply.status < 500

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()


class _Single:
    """A ServerChoice without a choice."""

    def __init__(self, server: ServerAddress) -> None:
        self._servers = (server,)

    def candidates(self) -> Sequence[ServerAddress]:
        return self._servers

    def connected(self, server: ServerAddress, connection: ClientConnection) -> None: ...

    def failed(self, server: ServerAddress) -> None: ...


def addresses_of(slices: Iterable[Obj]) -> list[ServerAddress]:
    """Return the addresses of the ready endpoints in EndpointSlices."""
    found = []
    for each in slices:
        ports = [port["port"] for port in each.get("ports") or () if port.get("port") and _is_https(port)]
        for endpoint in each.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                hosts = [host for host in endpoint.get("addresses") or () if is_ip_address(host)]
                found += [ServerAddress(host, port) for host in hosts for port in ports]
    return found


def _is_https(port: Obj) -> bool:
    return port.get("name") in ("https", "", None) and port.get("protocol") in ("TCP", None)


def _is_local(host: str) -> bool:
    """Return whether this is an address of this machine."""
    if host == "localhost":
        return True
    with suppress(OSError), socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as opened:
        if is_ip_address(host):
            opened.bind((host, 0))
            return True
    return False
