"""What the fleet knows of one of its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import Any

from setpoint.kinds.core.host_ports import HostPort
from setpoint.node.addresses import AddressPool
from setpoint.node.annotations import RUNNING

Obj = dict[str, Any]

_MOST_IMAGES = 50


class NodeState:
    __slots__ = (
        "address", "adopted", "boots", "images", "name", "object", "pods", "pool", "ports", "pulls",
        "shared", "state", "status_changed", "used",
    )  # fmt: skip

    def __init__(self, name: str, address: str, shared: AddressPool) -> None:
        """`shared` is where Pods get their addresses until the node has a range of its own."""
        self.name = name
        self.address = address
        self.shared = shared
        self.adopted = False
        """Somebody else made the Node; what it says about its capacity holds."""
        self.boots = 1
        self.object: Obj | None = None
        """The Node as it was last seen."""
        self.state = RUNNING
        self.images: dict[str, tuple[str, int]] = {}
        """By full name: its id and size. The oldest first."""
        self.status_changed = False
        """There is something in the status that the Node object does not show yet."""
        self.pulls: dict[str, float] = {}
        """Images on their way, and when they will be there."""
        self.pods: set[str] = set()
        """The uids of the Pods that hold resources here."""
        self.used: dict[str, int] = {}
        """Requested by them together: cpu in thousandths, everything else in whole units."""
        self.ports: dict[str, Sequence[HostPort]] = {}
        """Ports of the node that Pods have, by uid."""
        self.pool: AddressPool | None = None

    def add_image(self, name: str, image_id: str, size: int) -> None:
        if name not in self.images:
            self.images[name] = (image_id, size)
            self.status_changed = True
            if len(self.images) > 4 * _MOST_IMAGES:
                del self.images[next(iter(self.images))]

    def reported_images(self) -> list[Obj]:
        """The largest, as many as a Node's status has room for."""
        largest = sorted(self.images.items(), key=lambda each: (-each[1][1], each[0]))[:_MOST_IMAGES]
        return [{"names": [image_id, name], "sizeBytes": size} for name, (image_id, size) in largest]

    def address_for(self, pod: Mapping[str, Any]) -> str:
        """The Pod's address: the one it has, or a free one."""
        if pod["spec"].get("hostNetwork"):
            return self.address
        uid, known = pod["metadata"]["uid"], (pod.get("status") or {}).get("podIP") or ""
        own = self._pod_network()
        return (
            own.take(uid, known)
            if own is not None and (not known or own.holds(known))
            else self.shared.take(uid, known)
        )

    def hold(self, uid: str, amounts: Mapping[str, int]) -> None:
        self.pods.add(uid)
        for name, amount in amounts.items():
            self.used[name] = self.used.get(name, 0) + amount

    def give_back(self, uid: str, amounts: Mapping[str, int]) -> None:
        if uid in self.pods:
            self.pods.discard(uid)
            self.ports.pop(uid, None)
            for name, amount in amounts.items():
                self.used[name] -= amount

    def release(self, uid: str) -> None:
        self.shared.release(uid)
        if self.pool is not None:
            self.pool.release(uid)

    def _pod_network(self) -> AddressPool | None:
        """The node's own range of addresses, once it has one."""
        if self.pool is None and self.object is not None:
            for cidr in [*(self.object["spec"].get("podCIDRs") or ()), self.object["spec"].get("podCIDR") or ""]:
                network = ip_network(cidr) if cidr else None
                if network is not None and network.version == 4:
                    self.pool = AddressPool(network)
                    break
        return self.pool
