"""VolumeRestrictions: rejects nodes where a volume for one Pod at a time is in use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from setpoint.meta.objects import ObjView
from setpoint.scheduler.cluster_events import ASSIGNED_POD, CLAIM, NODE, Action, ClusterEvent
from setpoint.scheduler.framework import Cycle, FilterBase, Handle, Interest, Refusal, Rejected
from setpoint.scheduler.volume_binder import uses_claim

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

DISK_IN_USE = "node(s) had no available disk"
CLAIM_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi")


class VolumeRestrictions(FilterBase):
    name = "VolumeRestrictions"

    def __init__(self, handle: Handle) -> None:
        self._claims = handle.listers.claims

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        for key in cycle.demand.claims:
            if self._claims.get(key) is None:
                raise Rejected(f'persistentvolumeclaim "{key.partition("/")[2]}" not found')
        return None

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        found = []
        disks = [volume for volume in cycle.demand.volumes if any(kind in volume for kind in _DISKS)]
        if disks:
            conflicting = np.zeros(cycle.table.capacity, dtype=np.bool_)
            for name, slot in cycle.table.slots.items():
                conflicting[slot] = any(
                    _conflict(disks, placed.demand.volumes) for placed in cycle.snapshot.pods_on(name)
                )
            found.append(Refusal(DISK_IN_USE, conflicting))
        for key in cycle.demand.claims:
            claim = self._claims.get(key)
            alone = claim is not None and "ReadWriteOncePod" in ((claim.get("spec") or {}).get("accessModes") or ())
            if alone and cycle.snapshot.claims.get(key):
                found.append(Refusal(CLAIM_IN_USE, np.ones(cycle.table.capacity, dtype=np.bool_)))
                break
        return found

    def depends_on_pods(self, cycle: Cycle) -> bool:
        return bool(cycle.demand.volumes)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(ASSIGNED_POD, Action.DELETE), _freed_a_volume),
            Interest(ClusterEvent(NODE, Action.ADD)),
            Interest(ClusterEvent(CLAIM, Action.ADD), lambda pod, old, new: uses_claim(pod, new)),
        )


def _conflict(wanted: Sequence[ObjView], used: Sequence[ObjView]) -> bool:
    return any(_same_disk(mine, other) for mine in wanted for other in used)


def _same_disk(mine: ObjView, other: ObjView) -> bool:
    for kind, names in (("gcePersistentDisk", ("pdName",)), ("iscsi", ("iqn",))):
        if kind in mine and kind in other and all(mine[kind].get(name) == other[kind].get(name) for name in names):
            return not (mine[kind].get("readOnly") and other[kind].get("readOnly"))
    if "awsElasticBlockStore" in mine and "awsElasticBlockStore" in other:
        return bool(mine["awsElasticBlockStore"].get("volumeID") == other["awsElasticBlockStore"].get("volumeID"))
    if "rbd" in mine and "rbd" in other:
        a, b = mine["rbd"], other["rbd"]
        same = (a.get("pool") or "rbd", a.get("image")) == (b.get("pool") or "rbd", b.get("image"))
        shared = set(a.get("monitors") or ()) & set(b.get("monitors") or ())
        return bool(shared) and same and not (a.get("readOnly") and b.get("readOnly"))
    return False


def _freed_a_volume(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    if old is None or old["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    mine, freed = pod["spec"].get("volumes") or (), old["spec"].get("volumes") or ()
    names = {volume["persistentVolumeClaim"]["claimName"] for volume in mine if "persistentVolumeClaim" in volume}
    return _conflict(mine, freed) or any(
        volume["persistentVolumeClaim"]["claimName"] in names for volume in freed if "persistentVolumeClaim" in volume
    )
