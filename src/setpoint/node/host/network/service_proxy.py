"""Keeps the rules for Services and host ports of a node up to date."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.exposition import Family, Histogram, counter, exponential, gauge, histogram
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.host.network.conntrack import ConntrackCleaner, ConntrackError, destinations
from setpoint.node.host.network.health_checks import HealthCheckServers
from setpoint.node.host.network.host_ports import HostPort, host_port_fragment
from setpoint.node.host.network.nft import NftError, NftTable
from setpoint.node.host.network.ruleset import Ruleset
from setpoint.node.host.network.service_rules import (
    LocalRedirects,
    base_fragment,
    network_fragment,
    pool_fragment,
    redirect_fragment,
    service_fragment,
)
from setpoint.node.host.network.services import (
    BY_SERVICE,
    HealthCheck,
    ServicePort,
    Topology,
    health_check,
    service_keys,
    service_ports,
)
from setpoint.reconcile import Informer, Manager
from setpoint.reconcile.keys import key_of
from setpoint.tasks import within

log = logging.getLogger("setpoint.node.network")

_BATCH: Final = 20
"""The number of Services that are computed before other work of the event loop may run."""
_SERVICE, _POD = "service ", "pod "
"""Prefixes of the owners of fragments."""


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The settings of the Service proxy."""

    min_interval: float = 0.02
    """Seconds from the end of a change of the table to the next, in which further changes are collected. After a change
    that took longer than half of it, twice that time passes."""
    clean_period: float = 30.0
    """Seconds between two comparisons of the kernel's UDP connections if nothing changes."""
    health_check_host: str = ""
    """The address on which health check ports are served; empty means all addresses."""
    conntrack: str = "conntrack"
    """The program that lists and deletes connections; empty means that stale connections are not deleted."""


@dataclass(slots=True)
class SyncMetrics:
    """Measurements of the changes to the table."""

    sync_count: int = 0
    failures: int = 0
    last_sync_seconds: float = 0.0
    """The duration of the last change, with the run of nft."""
    last_latency: float = 0.0
    """Seconds from the first event that the last change includes to the end of the change."""
    durations: Histogram = field(default_factory=lambda: Histogram(exponential(0.001, 2, 15)))
    latencies: Histogram = field(default_factory=lambda: Histogram(exponential(0.001, 2, 15)))


class ServiceProxy:
    """Computes the rules of Services, host ports and local redirects as a section of the node's table.

    Events are coalesced; at most one run of nft is in progress. The table is first written when Services and
    EndpointSlices were listed and `host_ports_known` is set, so that a restart of the agent does not interrupt traffic.
    """

    def __init__(self, manager: Manager, node: str, table: NftTable, settings: ProxySettings, clock: Clock) -> None:
        self.host_ports_known = asyncio.Event()
        """Set by the owner once it has called `set_host_ports` for all Pods that run already."""
        self.metrics = SyncMetrics()
        self.services: dict[str, list[ServicePort]] = {}
        """The desired state of each Service that has rules, by its key."""
        self._services: Informer[Obj] = manager.informer(builtin("services"))
        self._slices: Informer[Obj] = manager.informer(builtin("endpointslices", "discovery.k8s.io"))
        self._slices.add_index(BY_SERVICE, service_keys)
        self._topology = Topology(node)
        self._table = table
        self._settings = settings
        self._clock = clock
        self._rules = Ruleset(table.reference)
        self._rules.put("", base_fragment())
        self._known = False
        """Whether the rules of all Services were computed."""
        self._pending: set[str] = set()
        """Keys of Services whose rules have to be computed."""
        self._pending_since: float | None = None
        """The time of the first event that is not in the table; None if there is none."""
        self._syncing = False
        self._wake = asyncio.Event()
        self._host_ports: dict[str, tuple[HostPort, ...]] = {}
        self._checks: dict[str, HealthCheck] = {}
        self._checks_changed = self._udp_changed = self._redirects_changed = False
        self._redirects: LocalRedirects = {}
        self._health_servers = HealthCheckServers(clock, lambda: table.in_force, settings.health_check_host)
        self._cleaner = ConntrackCleaner(clock, settings.conntrack) if settings.conntrack else None
        self._last_clean = clock.monotonic()
        self._clean_error = ""
        """The message of the last comparison of connections, if it failed; it is logged once."""
        table.add_section(self)

    # -- inputs --------------------------------------------------------------------------------------------------------

    def set_host_ports(self, uid: str, ports: Sequence[HostPort]) -> None:
        """Set the host ports of a Pod; empty if it has none or its network is gone."""
        old, new = self._host_ports.get(uid, ()), tuple(ports)
        if old == new:
            return
        if new:
            self._host_ports[uid] = new
        else:
            del self._host_ports[uid]
        self._rules.put(_POD + uid, host_port_fragment(uid, new) if new else None)
        self._udp_changed |= any(port.protocol == "udp" for port in (*old, *new))
        self._notify()

    def set_pod_cidrs(self, cidrs: Iterable[str]) -> None:
        """Set the Pod CIDRs of the node."""
        if self._rules.put("pod cidrs", network_fragment(cidrs)):
            self._notify()

    def set_local_redirects(self, redirects: LocalRedirects) -> None:
        """Set the addresses of Services that local ports answer for, unless such a Service has endpoints of its own."""
        self._redirects, self._redirects_changed = dict(redirects), True
        self._notify()

    def set_pool_addresses(self, addresses: Iterable[str]) -> None:
        """Set the addresses of load balancers that nodes announce: nothing but ports of Services answers at them."""
        if self._rules.put("pool addresses", pool_fragment(addresses)):
            self._notify()

    def set_zone(self, zone: str) -> None:
        """Set the zone of the node, which selects endpoints."""
        if zone != self._topology.zone:
            self._topology = self._topology._replace(zone=zone)
            for key in self._services.items:
                self._changed(key)

    @property
    def is_synced(self) -> bool:
        """Whether the table has all changes that were observed."""
        return self._pending_since is None and not self._syncing and self._table.in_force

    # -- the section of the table --------------------------------------------------------------------------------------

    def full(self) -> str | None:
        return self._rules.full() if self._known else None

    def changes(self) -> str | None:
        return self._rules.changes()

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the table up to date until cancelled. The rules remain."""
        await self._services.synced.wait()
        await self._slices.synced.wait()
        await self.host_ports_known.wait()
        self._services.add_handler(self._service_changed)
        self._slices.add_handler(self._slice_changed)
        try:
            await self._compute()
            self._known = self._udp_changed = True
            self._notify()
            while True:
                await self._wait_for_changes()
                self._syncing = True
                await self._sync()
                await self._clean_connections()
                self._syncing = False
                # The larger the table, the longer nft runs: a third of the time of one core is the limit.
                await self._clock.sleep(max(self._settings.min_interval, 2 * self.metrics.last_sync_seconds))
        finally:
            self._services.remove_handler(self._service_changed)
            self._slices.remove_handler(self._slice_changed)
            await self._health_servers.close()

    async def _wait_for_changes(self) -> None:
        with suppress(TimeoutError):
            await within(self._clock, self._settings.clean_period, self._wake.wait())
        self._wake.clear()

    async def _sync(self) -> None:
        """Bring the table to the desired state. A failure is logged; the table is repaired by its own loop."""
        since, self._pending_since = self._pending_since, None
        await self._compute()
        started = self._clock.monotonic()
        try:
            in_force = await self._table.update(self)
        except NftError as error:
            self.metrics.failures += 1
            log.error("the rules of Services cannot be written: %s", error)
            return
        if self._checks_changed:
            self._checks_changed = False
            await self._health_servers.update(self._checks.values())
        if since is not None and in_force:
            self._measure(since, started)

    def _measure(self, since: float, started: float) -> None:
        now, metrics = self._clock.monotonic(), self.metrics
        metrics.sync_count += 1
        metrics.last_sync_seconds = now - started
        metrics.last_latency = now - since
        metrics.durations.observe(metrics.last_sync_seconds)
        metrics.latencies.observe(metrics.last_latency)

    async def _compute(self) -> None:
        """Compute the rules of the Services that changed."""
        count = 0
        while self._pending:
            self._compute_service(self._pending.pop())
            count += 1
            if count % _BATCH == 0:
                await asyncio.sleep(0)
        if self._redirects_changed:
            self._redirects_changed = False
            self._rules.put("redirects", redirect_fragment(self._unserved_redirects()))

    def _compute_service(self, key: str) -> None:
        service, slices = self._services.get(key), self._slices.by_index(BY_SERVICE, key)
        ports: list[ServicePort] = []
        check: HealthCheck | None = None
        if service is not None:
            try:
                ports = service_ports(service, slices, self._topology)
                check = health_check(service, slices, self._topology)
            except (ValueError, KeyError, TypeError) as error:
                log.error("the Service %s is ignored because it is invalid: %r", key, error)
        old = self.services.pop(key, [])
        if ports:
            self.services[key] = ports
        if old != ports:
            self._rules.put(_SERVICE + key, service_fragment(ports) if ports else None)
            self._udp_changed |= any(port.protocol == "udp" for port in (*old, *ports))
            redirected = {address for address, _, _ in self._redirects}
            self._redirects_changed |= any(port.cluster_ip in redirected for port in (*old, *ports))
        if self._checks.get(key) != check:
            self._checks_changed = True
            if check is None:
                del self._checks[key]
            else:
                self._checks[key] = check

    def _unserved_redirects(self) -> LocalRedirects:
        served = {
            (port.cluster_ip, port.protocol, port.port)
            for ports in self.services.values()
            for port in ports
            if port.has_endpoints
        }
        return {key: local for key, local in self._redirects.items() if key not in served}

    async def _clean_connections(self) -> None:
        """Delete stale UDP connections after a change of UDP destinations, and periodically."""
        now = self._clock.monotonic()
        due = now - self._last_clean >= self._settings.clean_period
        if self._cleaner is None or not self._table.in_force or not (self._udp_changed or due):
            return
        self._udp_changed, self._last_clean = False, now
        try:
            desired = destinations(self.services.values(), self._host_ports.values())
            self._udp_changed |= await self._cleaner.clean(desired)
            self._clean_error = ""
        except ConntrackError as error:
            if str(error) != self._clean_error:
                log.warning("stale UDP connections cannot be deleted: %s", error)
            self._clean_error = str(error)

    # -- events --------------------------------------------------------------------------------------------------------

    def _service_changed(self, old: ObjView | None, new: ObjView | None) -> None:
        found = new or old
        assert found is not None
        self._changed(key_of(found))

    def _slice_changed(self, old: ObjView | None, new: ObjView | None) -> None:
        for each in (old, new):
            if each is not None:
                for key in service_keys(each):
                    self._changed(key)

    def _changed(self, key: str) -> None:
        self._pending.add(key)
        self._notify()

    def _notify(self) -> None:
        if self._pending_since is None:
            self._pending_since = self._clock.monotonic()
        self._wake.set()

    # -- metrics -------------------------------------------------------------------------------------------------------

    def families(self) -> Iterator[Family]:
        """Return the metrics, with the names of kube-proxy where it has them."""
        metrics = self.metrics
        yield histogram(
            "kubeproxy_sync_proxy_rules_duration_seconds",
            "SyncProxyRules latency in seconds.",
            [({}, metrics.durations)],
        )
        yield histogram(
            "kubeproxy_network_programming_duration_seconds",
            "Seconds from the first event of a change to the end of the change.",
            [({}, metrics.latencies)],
        )
        yield counter(
            "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
            "Cumulative proxy nftables sync failures.",
            [({}, metrics.failures)],
        )
        yield gauge("setpoint_proxy_services", "The number of Services that have rules.", [({}, len(self.services))])
