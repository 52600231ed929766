"""The network of a real node: routes to the Pods of other nodes, packet rules for Services and policies, and DNS."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.network.address_rules import AddressRules
from setpoint.node.host.network.cluster_nodes import ClusterNodes
from setpoint.node.host.network.dns.cluster_dns import ClusterDns
from setpoint.node.host.network.host_ports import host_ports
from setpoint.node.host.network.kernel_settings import KernelSettings
from setpoint.node.host.network.link_commands import LinkCommands
from setpoint.node.host.network.link_events import follow_link_changes
from setpoint.node.host.network.load_balancers import LoadBalancerAddresses
from setpoint.node.host.network.neighbour_announcer import NeighbourAnnouncer
from setpoint.node.host.network.nft import NftError, NftTable
from setpoint.node.host.network.policy_enforcer import PolicyEnforcer
from setpoint.node.host.network.route_plan import RouteSettings
from setpoint.node.host.network.routes import NodeRoutes, remove_routes
from setpoint.node.host.network.service_proxy import ProxySettings, ServiceProxy
from setpoint.reconcile import Manager
from setpoint.reconcile.manager import Runnable

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

log = logging.getLogger("setpoint.node.network")

TABLE: Final = "setpoint"
_ZONE_LABEL: Final = "topology.kubernetes.io/zone"
_SETTINGS: Final = {"net/ipv4/conf/all/send_redirects": "0", "net/ipv4/conf/default/send_redirects": "0"}
"""Settings of the kernel. Redirects would announce shorter paths to Pods, which do not exist for Services."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The settings of a node's network."""

    cluster_domain: str = "cluster.local"
    cluster_dns: tuple[str, ...] = ()
    """The addresses at which Pods reach the DNS server of their node."""
    routes: RouteSettings = field(default_factory=RouteSettings)


class NodeNetwork:
    """The network of one node while its agent runs. Rules and routes stay when the agent ends, so that traffic goes on;
    `remove_network` removes them."""

    def __init__(
        self,
        manager: Manager,
        node: str,
        directories: NodeDirectories,
        settings: NetworkSettings,
        pool: BlockingPool,
        clock: Clock,
        random: Callable[[int], bytes],
    ) -> None:
        """Create the network, and request the informers that it needs. `random` returns unpredictable octets."""
        self._kernel = _kernel_settings(directories, pool)
        self._table = NftTable(TABLE, clock)
        self._proxy = ServiceProxy(manager, node, self._table, ProxySettings(), clock)
        nodes, commands = ClusterNodes(manager, node), LinkCommands(clock)
        self._addresses = AddressRules(nodes, self._table, device=settings.routes.device)
        self._policies = PolicyEnforcer(manager, node, self._table, clock)
        self.routes = NodeRoutes(nodes, commands, clock, settings.routes, self._kernel, follow_link_changes)
        self.routes.on_plan.append(self._addresses.tunnel_planned)
        self._balancers = LoadBalancerAddresses(
            manager,
            node,
            commands,
            clock,
            NeighbourAnnouncer(),
            self._proxy.set_pool_addresses,
            follow_link_changes,
        )
        self.dns = ClusterDns(manager, settings.cluster_domain, clock, random, pool, cluster_dns=settings.cluster_dns)

    async def run(self) -> None:
        """Keep the network until cancelled. What fails is logged and repeated."""
        for problem in await self._kernel.apply(_SETTINGS):
            log.warning("%s", problem)
        async with asyncio.TaskGroup() as tasks:
            for part in self._parts():
                tasks.create_task(part.run())
            await self.dns.started.wait()
            self._proxy.set_local_redirects(self.dns.local_redirects())

    def _parts(self) -> Iterable[Runnable]:
        return self._table, self._proxy, self._addresses, self._policies, self.routes, self._balancers, self.dns

    # -- Pods ----------------------------------------------------------------------------------------------------------

    async def connect(self, pod: Pod, addresses: Sequence[str]) -> None:
        """Put the rules for a Pod in force, before its containers start."""
        if not pod["spec"].get("hostNetwork"):
            self._proxy.set_host_ports(pod["metadata"]["uid"], host_ports(pod, addresses))
            await self._policies.admit(pod, addresses)

    def disconnect(self, uid: str) -> None:
        """Remove the rules for a Pod whose sandbox has ended."""
        self._proxy.set_host_ports(uid, ())
        self._policies.release(uid)

    def adopt(self, pods: Sequence[tuple[Pod, Sequence[str]]]) -> None:
        """Take over the Pods that run already, each with its addresses. The rules are not written before this, because
        they would interrupt the traffic of these Pods."""
        for pod, addresses in pods:
            if not pod["spec"].get("hostNetwork"):
                self._proxy.set_host_ports(pod["metadata"]["uid"], host_ports(pod, addresses))
        self._proxy.host_ports_known.set()

    # -- Node ----------------------------------------------------------------------------------------------------------

    def node_changed(self, node: ObjView, pod_cidrs: Sequence[str]) -> None:
        """Take over the zone and the Pod CIDRs of the node."""
        self._proxy.set_zone(((node["metadata"].get("labels")) or {}).get(_ZONE_LABEL, ""))
        self._proxy.set_pod_cidrs(pod_cidrs)


def _kernel_settings(directories: NodeDirectories, pool: BlockingPool) -> KernelSettings:
    return KernelSettings(directories.root / "kernel-settings.json", pool)


async def remove_network(
    directories: NodeDirectories, pool: BlockingPool, clock: Clock, settings: RouteSettings | None = None
) -> list[str]:
    """Remove the rules, routes and devices of a node whose agent has ended, and restore the settings of the kernel.
    Return one sentence for each thing that could not be removed."""
    problems = []
    try:
        await NftTable(TABLE, clock).delete()
    except NftError as error:
        problems.append(f"the packet rules cannot be removed: {error}")
    kernel = _kernel_settings(directories, pool)
    return problems + await remove_routes(LinkCommands(clock), settings or RouteSettings(), kernel)
