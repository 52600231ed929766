"""VolumeZone: restricts volumes with zone labels to their zones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from setpoint.kinds.storage.binding import claim_class, waits_for_consumer
from setpoint.meta.node_labels import DEPRECATED, REGION, ZONE
from setpoint.meta.objects import ObjView
from setpoint.scheduler.cluster_events import CLAIM, NODE, STORAGE_CLASS, VOLUME, Action, ClusterEvent
from setpoint.scheduler.framework import Cycle, FilterBase, Handle, Interest, Refusal, Rejected
from setpoint.scheduler.node_table import Mask
from setpoint.scheduler.volume_binder import uses_claim

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node, Pod

REASON = "node(s) had no available volume zone"
_DEPRECATED_LABELS = {old: new for old, new in DEPRECATED.items() if new in (REGION, ZONE)}
_LABELS = (*_DEPRECATED_LABELS, *_DEPRECATED_LABELS.values())


class VolumeZone(FilterBase):
    name = "VolumeZone"

    def __init__(self, handle: Handle) -> None:
        self._claims = handle.listers.claims
        self._volumes = handle.listers.volumes
        self._classes = handle.listers.storage_classes

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        if cycle.demand.claims:
            cycle.state[self.name] = [zone for key in cycle.demand.claims for zone in self._zones(key)]
        return None

    def _zones(self, key: str) -> list[tuple[str, frozenset[str]]]:
        """Return the labels a node must have with their permitted values. Raise Rejected."""
        claim = self._claims.get(key)
        if claim is None:
            raise Rejected(f'persistentvolumeclaim "{key.partition("/")[2]}" not found')
        name = (claim.get("spec") or {}).get("volumeName")
        if not name:
            wanted = claim_class(claim)
            if not wanted:
                raise Rejected("PersistentVolumeClaim had no pv name and storageClass name")
            found = self._classes.get(wanted)
            if found is None:
                raise Rejected(f'storageclass.storage.k8s.io "{wanted}" not found')
            if waits_for_consumer(found):
                return []
            raise Rejected("PersistentVolume had no name")
        volume = self._volumes.get(name)
        if volume is None:
            raise Rejected(f'persistentvolume "{name}" not found')
        labels = volume["metadata"].get("labels") or {}
        return [(label, frozenset(labels[label].split("__"))) for label in _LABELS if label in labels]

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        zones: list[tuple[str, frozenset[str]]] = cycle.state.get(self.name) or []
        if not zones:
            return ()
        columns = cycle.table.labels
        zoned: Mask = np.zeros(cycle.table.capacity, dtype=np.bool_)
        for label in _LABELS:
            zoned |= columns.column(label).present
        wrong: Mask = np.zeros(cycle.table.capacity, dtype=np.bool_)
        for label, values in zones:
            column = columns.column(label)
            right = column.one_of(values)
            if label in _DEPRECATED_LABELS:
                # Fall back to the current label on nodes without the deprecated one.
                right |= ~column.present & columns.column(_DEPRECATED_LABELS[label]).one_of(values)
            wrong |= ~right
        return (Refusal(REASON, zoned & wrong, unresolvable=True),)

    def interests(self) -> Iterable[Interest]:
        return (
            Interest(ClusterEvent(STORAGE_CLASS, Action.ADD), _waits_for_consumer),
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_LABEL)),
            Interest(ClusterEvent(CLAIM, Action.ADD | Action.OTHER), lambda pod, old, new: uses_claim(pod, new)),
            Interest(ClusterEvent(VOLUME, Action.ADD | Action.OTHER), _zones_changed),
        )


def _waits_for_consumer(pod: Pod, old: ObjView | None, new: ObjView | None) -> bool:
    return waits_for_consumer(new)


def _zones_changed(pod: Pod, old: Node | None, new: Node | None) -> bool:
    if old is None or new is None:
        return True
    was, now = old["metadata"].get("labels") or {}, new["metadata"].get("labels") or {}
    return any(was.get(label) != now.get(label) for label in _LABELS)
