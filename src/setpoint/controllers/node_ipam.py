"""Allocates a Pod CIDR to every node out of the cluster CIDR."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

from setpoint.client import Client
from setpoint.controllers.node_lifecycle.taints import NODES
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.errors import ApiError, NotFound
from setpoint.reconcile import Controller, EventRecorder, Informer, Manager, key_of

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node

Network = IPv4Network | IPv6Network

_ACCOUNT = "node-controller"
_WORKERS = 30


class RangeFull(Exception):
    """Every part of the cluster CIDR is allocated to a node."""


class CidrPool:
    """Divides a network into CIDRs of one size. A released CIDR is reused as late as possible."""

    def __init__(self, network: Network, prefix: int) -> None:
        if prefix < network.prefixlen:
            raise ValueError(f"{network} is smaller than a /{prefix}")
        self._network = network
        self._prefix = prefix
        self._size = 1 << (network.max_prefixlen - prefix)
        self._count = 1 << (prefix - network.prefixlen)
        self._holders: dict[int, set[str]] = {}
        self._next = 0

    def allocate(self, holder: str) -> str:
        if len(self._holders) >= self._count:
            raise RangeFull(f"no /{self._prefix} is left in {self._network}")
        while self._next in self._holders:
            self._next = (self._next + 1) % self._count
        number = self._next
        self._holders[number] = {holder}
        self._next = (number + 1) % self._count
        return f"{self._network.network_address + number * self._size}/{self._prefix}"

    def occupy(self, cidr: Network, holder: str) -> None:
        """Mark a CIDR as allocated. CIDRs outside the network are ignored."""
        for number in self._numbers(cidr):
            self._holders.setdefault(number, set()).add(holder)

    def release(self, cidr: Network, holder: str) -> None:
        for number in self._numbers(cidr):
            holders = self._holders.get(number)
            if holders is not None:
                holders.discard(holder)
                if not holders:
                    del self._holders[number]

    def _numbers(self, cidr: Network) -> range:
        if cidr.version != self._network.version or not cidr.overlaps(self._network):
            return range(0)
        base = int(self._network.network_address)
        first = max(0, (int(cidr.network_address) - base) // self._size)
        last = min(self._count - 1, (int(cidr.broadcast_address) - base) // self._size)
        return range(first, last + 1)


def pools_of(options: ControllerOptions) -> list[CidrPool]:
    """Return a pool for each address family of the cluster CIDR, without the Service range."""
    sizes = {4: options.node_cidr_mask_size_ipv4, 6: options.node_cidr_mask_size_ipv6}
    services = [ip_network(text) for text in options.service_cluster_ip_range.split(",") if text]
    pools = []
    for text in filter(None, options.cluster_cidr.split(",")):
        network = ip_network(text)
        pool = CidrPool(network, sizes[network.version])
        for service in services:
            pool.occupy(service, "services")
        pools.append(pool)
    return pools


def node_ipam_controller(manager: Manager, options: ControllerOptions) -> Controller:
    ipam = NodeIpam(
        manager.client_for(_ACCOUNT),
        manager.recorder("cidrAllocator", _ACCOUNT),
        manager.informer(NODES),
        pools_of(options) if options.allocate_node_cidrs else [],
    )
    controller = Controller("node-ipam-controller", ipam.reconcile, manager.clock, workers=_WORKERS)
    if options.allocate_node_cidrs:
        ipam.watch(controller)
    return controller


class NodeIpam:
    """Allocates CIDRs to nodes.

    The nodes hold the allocation; this object mirrors it and adds allocations that are being written. The CIDR of a
    node never changes.
    """

    def __init__(self, client: Client, recorder: EventRecorder, nodes: Informer[Node], pools: list[CidrPool]) -> None:
        self._client = client
        self._recorder = recorder
        self._nodes = nodes
        self._pools = pools
        self._allocated: dict[str, list[str]] = {}
        """The CIDRs allocated to a node, which the cache may not show yet, by uid of the node."""

    def watch(self, controller: Controller) -> None:
        def changed(old: Node | None, new: Node | None) -> None:
            if new is None:
                self._forget(old or {})
                for key, node in self._nodes.items.items():
                    if not _ranges(node):
                        controller.enqueue(key)  # a CIDR may be free now
                return
            if old is not None and _ranges(new) and _ranges(old) == _ranges(new):
                return  # a heartbeat
            # Record all existing allocations before any new one is made.
            for pool, cidr in zip(self._pools, _ranges(new), strict=False):
                pool.occupy(ip_network(cidr, strict=False), new["metadata"]["uid"])
            if not _ranges(new):
                controller.enqueue(key_of(new))

        self._nodes.add_handler(changed)

    def _forget(self, node: Node) -> None:
        uid = node["metadata"]["uid"]
        given = self._allocated.pop(uid, [])
        for ranges in (_ranges(node), given):
            for pool, cidr in zip(self._pools, ranges, strict=False):
                pool.release(ip_network(cidr, strict=False), uid)

    async def reconcile(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or _ranges(node) or "deletionTimestamp" in node["metadata"]:
            return
        uid = node["metadata"]["uid"]
        ranges = self._allocated.get(uid)
        if ranges is None:
            ranges = self._allocated[uid] = self._allocate(node)
        change = {"metadata": {"uid": uid}, "spec": {"podCIDR": ranges[0], "podCIDRs": ranges}}
        try:
            await self._client.patch(NODES, name, change, kind="strategic")
        except NotFound:
            self._forget(node)
        except ApiError:
            self._record(node, "CIDRAssignmentFailed")
            raise

    def _allocate(self, node: Node) -> list[str]:
        uid, allocated = node["metadata"]["uid"], []
        try:
            for pool in self._pools:
                allocated.append(pool.allocate(uid))
        except RangeFull:
            for pool, cidr in zip(self._pools, allocated, strict=False):
                pool.release(ip_network(cidr), uid)
            self._record(node, "CIDRNotAvailable")
            raise
        return allocated

    def _record(self, node: Node, status: str) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
        self._recorder.normal(about, status, f"Node {name} status is now: {status}")


def _ranges(node: Node) -> list[str]:
    spec = node.get("spec") or {}
    one = spec.get("podCIDR")
    return list(spec.get("podCIDRs") or ([one] if one else ()))
