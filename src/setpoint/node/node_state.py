"""The state that the fleet holds about one node, and the pools from which nodes and Pods get their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from setpoint.kinds.core.pod_demand import HostPort
from setpoint.meta.objects import Obj, ObjView
from setpoint.node.simulation_annotations import RUNNING

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

POD_NETWORK = IPv4Network("10.244.0.0/14")
NODE_NETWORK = IPv4Network("172.30.0.0/16")
_MAX_IMAGES = 50


class AddressPool:
    """A pool of addresses, allocated in turn, so that a released address is reused as late as possible."""

    def __init__(self, network: IPv4Network | IPv6Network) -> None:
        self._network = network
        self._next = 1
        self._holders: dict[str, str] = {}
        """Holders by address."""
        self._addresses: dict[str, str] = {}
        """Addresses by holder."""

    def allocate(self, holder: str, preferred: str = "") -> str:
        """Return the address that the holder has, `preferred` if that is free, or the next free one."""
        if holder in self._addresses:
            return self._addresses[holder]
        if preferred and preferred not in self._holders:
            return self._assign(holder, preferred)
        usable = self._network.num_addresses - 2
        if len(self._holders) >= usable:
            raise RuntimeError(f"no free address in {self._network}")
        while True:
            address = str(self._network.network_address + self._next)
            self._next = self._next % usable + 1
            if address not in self._holders:
                return self._assign(holder, address)

    def address_of(self, holder: str) -> str:
        """Return the address that the holder has; empty if it has none."""
        return self._addresses.get(holder, "")

    def contains(self, address: str) -> bool:
        return ip_address(address) in self._network

    def release(self, holder: str) -> None:
        address = self._addresses.pop(holder, None)
        if address is not None:
            del self._holders[address]

    def _assign(self, holder: str, address: str) -> str:
        self._addresses[holder] = address
        self._holders[address] = holder
        return address


class NodeState:
    """The state of a node in a fleet: its Node object, images, allocated resources, ports and Pod addresses."""

    __slots__ = (
        "address",
        "addresses",
        "adopted",
        "boot_count",
        "images",
        "images_changed",
        "name",
        "object",
        "own_pool",
        "pods",
        "ports",
        "pulls_in_progress",
        "shared_pool",
        "state",
        "status_changed",
        "used_resources",
    )

    def __init__(self, name: str, address: str, shared_pool: AddressPool | None = None) -> None:
        """Create the state. Pods of a simulated node get addresses from `shared_pool` until the node has a Pod CIDR.
        Without a pool the node is real: its container runtime assigns the addresses."""
        self.name = name
        self.address = address
        self.addresses: tuple[str, ...] = (address,)
        """The addresses of the node, at most one of each family, the primary one first."""
        self.shared_pool = shared_pool
        self.adopted = False
        """Whether a client created the Node; its capacity then counts."""
        self.boot_count = 1
        self.object: ObjView | None = None
        """The Node as last observed; None before its registration."""
        self.state = RUNNING
        """The simulated state: running, stopped or partitioned."""
        self.images: dict[str, tuple[str, int]] = {}
        """Id and size by the full name of the image, the oldest first."""
        self.images_changed = False
        """Whether there are images that the Node's status does not show yet."""
        self.status_changed = False
        """Whether the Node's status must be reported before the next periodic report."""
        self.pulls_in_progress: dict[str, float] = {}
        """The time at which the pull will be complete, by the full name of the image."""
        self.pods: set[str] = set()
        """The uids of the Pods to which resources of the node are allocated."""
        self.used_resources: dict[str, int] = {}
        """The sum of their requests by resource: CPU in thousandths, everything else in whole units."""
        self.ports: dict[str, Sequence[HostPort]] = {}
        """The host ports of Pods by uid."""
        self.own_pool: AddressPool | None = None
        """The addresses of the node's Pod CIDR; None before the node has one."""

    @property
    def recursive_read_only(self) -> bool:
        """Whether the default handler of the container runtime supports recursive read-only mounts."""
        handlers = ((self.object or {}).get("status") or {}).get("runtimeHandlers") or ()
        return any(
            (each.get("features") or {}).get("recursiveReadOnlyMounts") for each in handlers if not each.get("name")
        )

    def add_image(self, name: str, image_id: str, size: int) -> None:
        if name not in self.images:
            self.images[name] = (image_id, size)
            self.images_changed = True
            if len(self.images) > 4 * _MAX_IMAGES:
                del self.images[next(iter(self.images))]

    def reported_images(self) -> list[Obj]:
        """Return the largest images, up to the maximum in a Node's status."""
        largest = sorted(self.images.items(), key=lambda each: (-each[1][1], each[0]))[:_MAX_IMAGES]
        return [{"names": [image_id, name], "sizeBytes": size} for name, (image_id, size) in largest]

    def address_for(self, pod: Pod) -> str:
        """Return the Pod's address: the one in its status, or a free one."""
        if pod["spec"].get("hostNetwork"):
            return self.address
        assert self.shared_pool is not None, "the node is simulated"
        uid, known = pod["metadata"]["uid"], (pod.get("status") or {}).get("podIP") or ""
        own = self._pod_cidr_pool()
        return (
            own.allocate(uid, known)
            if own is not None and (not known or own.contains(known))
            else self.shared_pool.allocate(uid, known)
        )

    def allocate_resources(self, uid: str, amounts: Mapping[str, int]) -> None:
        self.pods.add(uid)
        for name, amount in amounts.items():
            self.used_resources[name] = self.used_resources.get(name, 0) + amount

    def release_resources(self, uid: str, amounts: Mapping[str, int]) -> None:
        if uid in self.pods:
            self.pods.discard(uid)
            self.ports.pop(uid, None)
            for name, amount in amounts.items():
                self.used_resources[name] -= amount

    def release_addresses(self, uid: str) -> None:
        if self.shared_pool is not None:
            self.shared_pool.release(uid)
        if self.own_pool is not None:
            self.own_pool.release(uid)

    def _pod_cidr_pool(self) -> AddressPool | None:
        """Return the pool of the node's Pod CIDR, or None if it has none yet."""
        if self.own_pool is None and self.object is not None:
            for cidr in [*(self.object["spec"].get("podCIDRs") or ()), self.object["spec"].get("podCIDR") or ""]:
                network = ip_network(cidr) if cidr else None
                if network is not None and network.version == 4:
                    self.own_pool = AddressPool(network)
                    self._move_restored_addresses()
                    break
        return self.own_pool

    def _move_restored_addresses(self) -> None:
        """Move the addresses of Pods that were restored before the Node was observed to the node's own pool."""
        assert self.shared_pool is not None and self.own_pool is not None
        for uid in self.pods:
            address = self.shared_pool.address_of(uid)
            if address and self.own_pool.contains(address):
                self.shared_pool.release(uid)
                self.own_pool.allocate(uid, address)
