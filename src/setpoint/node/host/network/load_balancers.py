"""Addresses of load balancers that the nodes announce themselves: which node announces which address.

Every agent computes the same answer from the same objects: among the nodes that are ready and on the subnet of the
address, a hash of the Service and the node decides. If a node is lost, only its own addresses move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface
from typing import Final, NamedTuple

from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.conditions import ADDRESS_FROM_POOL, condition_of
from setpoint.meta.node_labels import EXCLUDE_FROM_LOAD_BALANCERS
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.host.network.link_commands import LinkCommandError, LinkCommands
from setpoint.node.host.network.neighbour_announcer import Interface, NeighbourAnnouncer
from setpoint.node.host.network.route_plan import node_addresses, valid_addresses
from setpoint.node.host.network.routes import LinkChanges
from setpoint.node.host.network.services import BY_SERVICE, balancer_addresses, is_proxied, service_keys
from setpoint.reconcile import Informer, Manager
from setpoint.reconcile.keys import key_of
from setpoint.tasks import within

log = logging.getLogger("setpoint.node.network")

_SIMULATED: Final = "simulated://"
"""The container runtime of simulated nodes, which announce nothing."""
_IGNORED_LINKS: Final = ("lo", "veth", "setpoint-")
_COALESCE, _REPEAT, _RESYNC = 0.05, 1.0, 30.0


class Segment(NamedTuple):
    """An interface of the machine with one of its addresses."""

    interface: Interface
    address: IPv4Interface | IPv6Interface


class PoolAddress(NamedTuple):
    """An address of a Service that a node announces."""

    service: str
    """The key of the Service."""
    address: str
    local: bool
    """Whether only nodes with endpoints accept traffic."""


def pool_addresses(service: ObjView) -> list[PoolAddress]:
    """Return the addresses of a Service that were assigned from the pool."""
    if (condition_of(service, ADDRESS_FROM_POOL) or {}).get("status") != "True" or not is_proxied(service):
        return []
    local = service["spec"].get("externalTrafficPolicy") == "Local"
    return [PoolAddress(key_of(service), str(ip_address(each)), local) for each in balancer_addresses(service)]


def segments(listed: Iterable[ObjView]) -> list[Segment]:
    """Return the interfaces that have a carrier, with their subnets, from the output of `ip -json address`."""
    found = []
    for each in listed:
        usable = each.get("link_type") == "ether" and "LOWER_UP" in each.get("flags", ())
        if not usable or each["ifname"].startswith(_IGNORED_LINKS):
            continue
        interface = Interface(each["ifname"], bytes.fromhex(each["address"].replace(":", "")), each["ifindex"])
        for entry in each.get("addr_info") or ():
            if entry.get("local") and entry.get("scope") != "link":
                found.append(Segment(interface, ip_interface(f"{entry['local']}/{entry['prefixlen']}")))
    return found


def elected(service: str, nodes: Iterable[str]) -> str | None:
    """Return the node that announces the addresses of a Service; None if there are no candidates."""
    return min(nodes, key=lambda node: sha256(f"{service} {node}".encode()).digest(), default=None)


def is_candidate(node: ObjView) -> bool:
    """Return whether a node may announce addresses."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return (
        (condition_of(node, "Ready") or {}).get("status") == "True"
        and EXCLUDE_FROM_LOAD_BALANCERS not in (node["metadata"].get("labels") or {})
        and not (info.get("containerRuntimeVersion") or "").startswith(_SIMULATED)
    )


def endpoint_nodes(slices: Iterable[ObjView]) -> set[str]:
    """Return the nodes that have endpoints for external traffic with the policy Local."""
    ready, terminating = set(), set()
    for each in slices:
        for endpoint in each.get("endpoints") or ():
            conditions, node = endpoint.get("conditions") or {}, endpoint.get("nodeName")
            if node and conditions.get("ready") is not False:
                ready.add(node)
            elif node and conditions.get("serving") is not False and conditions.get("terminating") is True:
                terminating.add(node)
    return ready or terminating


class LoadBalancerAddresses:
    """Announces the addresses for which this node is elected."""

    def __init__(
        self,
        manager: Manager,
        node: str,
        commands: LinkCommands,
        clock: Clock,
        announcer: NeighbourAnnouncer,
        on_addresses: Callable[[frozenset[str]], None],
        link_changes: LinkChanges | None = None,
    ) -> None:
        """Create the loop of the node with this name. `on_addresses` is called with all addresses of the pool that are
        in use, on whichever node, when they change."""
        self._node = node
        self._commands = commands
        self._clock = clock
        self._announcer = announcer
        self._on_addresses = on_addresses
        self._link_changes = link_changes
        self._services: Informer[Obj] = manager.informer(builtin("services"))
        self._slices: Informer[Obj] = manager.informer(builtin("endpointslices", "discovery.k8s.io"))
        self._slices.add_index(BY_SERVICE, service_keys)
        self._nodes: Informer[Obj] = manager.informer(builtin("nodes"))
        self._wanted: dict[str, list[PoolAddress]] = {}
        """The addresses of the pool by the key of the Service."""
        self._used: frozenset[str] = frozenset()
        self._reported: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        self._services.add_handler(self._service_changed)
        self._slices.add_handler(self._slice_changed)
        self._nodes.add_handler(self._node_changed)

    async def run(self) -> None:
        """Announce addresses until cancelled; then they are no longer answered for."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._link_changes is not None:
                    tasks.create_task(self._follow_links(self._link_changes))
                await self._keep()
        finally:
            self._announcer.close()

    async def _follow_links(self, link_changes: LinkChanges) -> None:
        await link_changes(self._changed.set)

    async def _keep(self) -> None:
        for informer in (self._services, self._slices, self._nodes):
            await informer.synced.wait()
        while True:
            self._changed.clear()
            await self._reconcile()
            with suppress(TimeoutError):
                if not self._wanted and not self._announcer.addresses:
                    await self._changed.wait()
                else:
                    wait = _REPEAT if self._announcer.is_repeating else _RESYNC
                    await within(self._clock, wait, self._changed.wait())
                await self._clock.sleep(_COALESCE)

    async def _reconcile(self) -> None:
        wanted = [each for found in self._wanted.values() for each in found]
        used = frozenset(each.address for each in wanted)
        if used != self._used:
            self._used = used
            self._on_addresses(used)
        if not wanted and not self._announcer.addresses:
            return
        try:
            found = segments(await self._commands.query("ip", "-json", "address", "show"))
        except LinkCommandError as error:
            problems = [str(error)]
        else:
            problems = self._announcer.update(self._desired(wanted, found), self._term())
        if tuple(problems) != self._reported:
            for problem in problems:
                log.warning("addresses of load balancers: %s", problem)
            self._reported = tuple(problems)

    def _desired(self, wanted: Iterable[PoolAddress], found: Sequence[Segment]) -> dict[str, Interface]:
        desired = {}
        candidates = [node for node in self._nodes.items.values() if is_candidate(node)]
        for each in wanted:
            address = ip_address(each.address)
            segment = next((one for one in found if address in one.address.network), None)
            if segment is None:
                continue
            network = segment.address.network
            names = {
                name
                for name, _, addresses in map(node_addresses, candidates)
                if name == self._node or any(one in network for one in valid_addresses(addresses))
            }
            if each.local:
                names &= endpoint_nodes(self._slices.by_index(BY_SERVICE, each.service))
            if elected(each.service, names) == self._node:
                desired[each.address] = segment.interface
        return desired

    def _term(self) -> str:
        """Return when the node became ready. Another node may have taken over in between, unnoticed by this one."""
        node = self._nodes.get(self._node)
        ready = condition_of(node, "Ready") if node is not None else None
        return str((ready or {}).get("lastTransitionTime") or "")

    # -- events --------------------------------------------------------------------------------------------------------

    def _service_changed(self, old: Obj | None, new: Obj | None) -> None:
        key = key_of(new or old or {})
        found: list[PoolAddress] = []
        if new is not None:
            try:
                found = pool_addresses(new)
            except ValueError as error:
                log.error("the addresses of the Service %s are ignored: %s", key, error)
        if found != self._wanted.get(key, []):
            self._wanted.pop(key, None)
            if found:
                self._wanted[key] = found
            self._changed.set()

    def _slice_changed(self, old: Obj | None, new: Obj | None) -> None:
        for key in service_keys(new or old or {}):
            if any(each.local for each in self._wanted.get(key, ())):
                self._changed.set()

    def _node_changed(self, old: Obj | None, new: Obj | None) -> None:
        if self._wanted and (old is None or new is None or _relevant(old) != _relevant(new)):
            self._changed.set()


def _relevant(node: Obj) -> tuple[object, ...]:
    """Return what the election depends on."""
    ready = condition_of(node, "Ready") or {}
    return is_candidate(node), ready.get("lastTransitionTime"), node_addresses(node).addresses
