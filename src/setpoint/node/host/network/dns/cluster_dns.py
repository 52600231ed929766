"""The DNS server of the cluster on this node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Any, Final

from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.network.dns.resolver import ClusterResolver
from setpoint.node.host.network.dns.server import DnsServer, ListenAddress, ServerLimits
from setpoint.node.host.network.dns.upstream import RESOLV_CONF, SYSTEMD_RESOLV_CONF, Forwarder, read_name_servers
from setpoint.node.host.network.dns.zone import ClusterZone
from setpoint.reconcile import Informer, Manager

log = logging.getLogger("setpoint.node.dns")

_SERVICES, _NAMESPACES = builtin("services"), builtin("namespaces")
_SLICES = builtin("endpointslices", "discovery.k8s.io")
DNS_PORT: Final = 53
_LISTEN_RETRY: Final = 1.0
_RESOLV_CONF_PERIOD: Final = 5.0
"""Seconds between two readings of the machine's resolv.conf, which changes when the machine enters a network."""


class ClusterDns:
    """Answers for the cluster domain from the caches of informers, and forwards other names to the name servers of the
    machine. While the API server is away, answers stay those of the last known state."""

    def __init__(
        self,
        manager: Manager,
        domain: str,
        clock: Clock,
        random: Callable[[int], bytes],
        pool: BlockingPool,
        *,
        addresses: Sequence[str] = ("0.0.0.0", "::"),
        port: int = 0,
        cluster_dns: Sequence[str] = (),
        networks: Sequence[IPv4Network | IPv6Network] = (),
        limits: ServerLimits | None = None,
        resolv_conf: Path = RESOLV_CONF,
        systemd_resolv_conf: Path = SYSTEMD_RESOLV_CONF,
    ) -> None:
        """Create the server, and request the informers of `manager` that it needs. Raises DnsFormatError.

        It listens at `addresses`, at a free port if `port` is 0. `cluster_dns` are the addresses at which Pods reach
        it, which are never used as name servers. Only clients in `networks` are answered; none means all clients.
        `random` returns unpredictable octets."""
        self._clock = clock
        self._pool = pool
        self._listen_at = tuple(addresses)
        self._port = port
        self._cluster_dns = tuple(cluster_dns)
        excluded = frozenset((*cluster_dns, *(addresses if port == DNS_PORT else ())))
        self._resolv_conf = partial(read_name_servers, excluded, resolv_conf, systemd_resolv_conf)
        self.zone = ClusterZone(domain, lambda: int(clock.now().timestamp()), cluster_dns or addresses)
        self.forwarder = Forwarder((), clock, random)
        self._informers: list[Informer[Any]] = []
        for resource, handler in (
            (_NAMESPACES, self.zone.namespace_changed),
            (_SERVICES, self.zone.service_changed),
            (_SLICES, self.zone.slice_changed),
        ):
            informer = manager.informer(resource)
            informer.add_handler(handler)
            self._informers.append(informer)
        self._synced = False
        self.server = DnsServer(ClusterResolver(self.zone, self.forwarder, self.synced), clock, limits, networks)
        self.started = asyncio.Event()
        """Set once the server listens, and `address` is known."""

    @property
    def address(self) -> ListenAddress | None:
        """The first address at which the server listens; None while it does not."""
        found = self.server.addresses
        return found[0] if found else None

    def local_redirects(self) -> dict[tuple[str, str, int], int]:
        """Return the local port for each address, protocol and port at which Pods reach the server; empty while it does
        not listen."""
        if self.address is None:
            return {}
        local = self.address.port
        return {(at, protocol, DNS_PORT): local for at in self._cluster_dns for protocol in ("udp", "tcp")}

    def synced(self) -> bool:
        """Return whether every object that existed at the start is known."""
        if not self._synced:
            self._synced = all(informer.synced.is_set() for informer in self._informers)
        return self._synced

    def health(self) -> str:
        """Return why names cannot be resolved; empty if they can."""
        if self.address is None:
            return "cluster DNS is not listening"
        return "" if self.synced() else "cluster DNS has not received the Services yet"

    async def run(self) -> None:
        """Serve until cancelled. The manager must run meanwhile."""
        try:
            await self._read_name_servers()
            await self._listen()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.server.run())
                tasks.create_task(self._follow_name_servers())
        finally:
            self.started.clear()
            await self.server.stop()
            await self.forwarder.stop()

    async def _listen(self) -> None:
        """Listen, as soon as the addresses exist and the port is free."""
        reported = ""
        while True:
            try:
                await self.server.start(self._listen_at, self._port)
                break
            except OSError as error:
                if reported != str(error):
                    log.warning("the DNS server cannot listen at %s, retrying: %s", ", ".join(self._listen_at), error)
                reported = str(error)
                await self._clock.sleep(_LISTEN_RETRY)
        self.started.set()

    async def _read_name_servers(self) -> bool:
        """Return whether other name servers than before are in use."""
        found = tuple(await self._pool.run(self._resolv_conf))
        if found == self.forwarder.servers:
            return False
        self.forwarder.update(found)
        if not found:
            log.warning("this machine has no name server; names outside of the cluster cannot be resolved")
        return True

    async def _follow_name_servers(self) -> None:
        changed = True
        while True:
            if changed:
                with suppress(OSError):
                    await self.forwarder.check_loops()
            await self._clock.sleep(_RESOLV_CONF_PERIOD)
            changed = await self._read_name_servers()
