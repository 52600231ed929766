"""NodeVolumeLimits: limits the volumes of a CSI driver per node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from setpoint.kinds.storage.binding import claim_class
from setpoint.meta.objects import ObjView
from setpoint.scheduler.cluster_events import (
    ASSIGNED_POD,
    ATTACHMENT,
    CLAIM,
    CSI_NODE,
    Action,
    ClusterEvent,
)
from setpoint.scheduler.framework import Cycle, FilterBase, Handle, Interest, Refusal
from setpoint.scheduler.volume_binder import pod_claims, uses_claim

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

REASON = "node(s) exceed max volume count"
_BY_NODE = "node"


class NodeVolumeLimits(FilterBase):
    name = "NodeVolumeLimits"

    def __init__(self, handle: Handle) -> None:
        self._listers = handle.listers
        handle.listers.attachments.add_index(_BY_NODE, lambda obj: ((obj.get("spec") or {}).get("nodeName") or "",))

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        if not cycle.demand.volumes:
            return ()
        wanted = self._volumes(cycle.pod)
        if not wanted:
            return ()
        drivers = set(wanted.values())
        full = np.zeros(cycle.table.capacity, dtype=np.bool_)
        for key, csi_node in self._listers.csi_nodes.items.items():
            slot = cycle.table.slots.get(key)
            limits = {name: count for name, count in _limits(csi_node).items() if name in drivers}
            if slot is not None and limits:
                full[slot] = self._is_full(cycle, key, wanted, limits)
        return (Refusal(REASON, full),)

    def _is_full(self, cycle: Cycle, node: str, wanted: dict[str, str], limits: dict[str, int]) -> bool:
        attached: dict[str, str] = {}
        for placed in cycle.snapshot.pods_on(node):
            if placed.demand.volumes:
                attached.update(self._volumes(placed.pod))
        for attachment in self._listers.attachments.by_index(_BY_NODE, node):
            spec = attachment.get("spec") or {}
            volume = self._listers.volumes.get((spec.get("source") or {}).get("persistentVolumeName") or "")
            source = ((volume or {}).get("spec") or {}).get("csi")
            if source:
                attached.setdefault(f"{source['driver']}/{source['volumeHandle']}", source["driver"])
        for driver, limit in limits.items():
            used = sum(other == driver for other in attached.values())
            new = sum(other == driver and name not in attached for name, other in wanted.items())
            if new and used + new > limit:
                return True
        return False

    def _volumes(self, pod: Pod) -> dict[str, str]:
        """Yield the unique name and the driver of each CSI volume of the Pod."""
        found: dict[str, str] = {}
        for name, _ in pod_claims(pod):
            claim = self._listers.claims.get(f"{pod['metadata']['namespace']}/{name}")
            if claim is None:
                continue
            volume = self._listers.volumes.get((claim.get("spec") or {}).get("volumeName") or "")
            if volume is None:
                # Unbound: the future provisioner counts.
                storage_class = self._listers.storage_classes.get(claim_class(claim))
                driver = (storage_class or {}).get("provisioner") or ""
                if driver and self._listers.csi_drivers.get(driver) is not None:
                    found[f"{driver}/{pod['metadata']['namespace']}/{name}"] = driver
                continue
            source = volume["spec"].get("csi")
            if source:
                found[f"{source['driver']}/{source['volumeHandle']}"] = source["driver"]
        return found

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return bool(cycle.demand.volumes)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(CSI_NODE, Action.ADD)),
            Interest(ClusterEvent(CSI_NODE, Action.OTHER), _limit_rose),
            Interest(ClusterEvent(ASSIGNED_POD, Action.DELETE), _freed_a_volume),
            Interest(ClusterEvent(CLAIM, Action.ADD), lambda pod, old, new: uses_claim(pod, new)),
            Interest(ClusterEvent(ATTACHMENT, Action.DELETE), lambda pod, old, new: any(pod_claims(pod))),
        )


def _limits(csi_node: ObjView) -> dict[str, int]:
    return {
        driver["name"]: int(driver["allocatable"]["count"])
        for driver in (csi_node.get("spec") or {}).get("drivers") or ()
        if (driver.get("allocatable") or {}).get("count") is not None
    }


def _limit_rose(pod: Pod, old: ObjView | None, new: ObjView | None) -> bool:
    was = _limits(old or {})
    return any(count > was.get(name, 0) for name, count in _limits(new or {}).items())


def _freed_a_volume(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return old is not None and any(pod_claims(old))
