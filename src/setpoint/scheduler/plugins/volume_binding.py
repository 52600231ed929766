"""VolumeBinding: accepts nodes where the Pod's volumes are accessible or can be provisioned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from setpoint.meta.objects import ObjView
from setpoint.scheduler.cluster_events import (
    CLAIM,
    CSI_CAPACITY,
    CSI_DRIVER,
    CSI_NODE,
    NODE,
    STORAGE_CLASS,
    VOLUME,
    Action,
    ClusterEvent,
)
from setpoint.scheduler.framework import Cycle, FilterBase, Handle, Interest, Refusal
from setpoint.scheduler.volume_binder import (
    BIND_TIMEOUT,
    Plan,
    VolumeBinder,
    VolumeReservation,
    uses_claim,
    volume_limit,
)

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod


class VolumeBinding(FilterBase):
    name = "VolumeBinding"
    cumulative = True

    def __init__(self, handle: Handle, bind_timeout: float = BIND_TIMEOUT) -> None:
        self.binder = VolumeBinder(handle.listers, bind_timeout)

    def prefilter(self, cycle: Cycle) -> frozenset[str] | None:
        if cycle.demand.volumes:
            bound, waiting = self.binder.claims_of(cycle.pod)
            if bound or waiting:
                cycle.state[self.name] = self.binder.plan(cycle.table, bound, waiting)
        return None

    def refusals(self, cycle: Cycle) -> Sequence[Refusal]:
        plan: Plan | None = cycle.state.get(self.name)
        return () if plan is None else plan.refusals

    def reserve(self, cycle: Cycle, node: str) -> VolumeReservation | None:
        """Reserve volumes. Return what must be written and awaited before the Pod can be bound, or None."""
        plan: Plan | None = cycle.state.get(self.name)
        if plan is None or not plan.claims:
            return None
        return self.binder.reserve(plan, cycle.table, node)

    def interests(self) -> Iterable[Interest]:
        add_or_change = Action.ADD | Action.OTHER
        return (
            Interest(ClusterEvent(STORAGE_CLASS, add_or_change), _class_changed),
            Interest(ClusterEvent(CLAIM, add_or_change), lambda pod, old, new: uses_claim(pod, new)),
            Interest(ClusterEvent(VOLUME, add_or_change)),
            Interest(ClusterEvent(NODE, Action.ADD | Action.NODE_LABEL)),
            Interest(ClusterEvent(CSI_NODE, Action.ADD)),
            Interest(ClusterEvent(CSI_DRIVER, Action.OTHER)),
            Interest(ClusterEvent(CSI_CAPACITY, add_or_change), _capacity_grew),
        )


def _class_changed(pod: Pod, old: ObjView | None, new: ObjView | None) -> bool:
    return old is None or new is None or old.get("allowedTopologies") != new.get("allowedTopologies")


def _capacity_grew(pod: Pod, old: ObjView | None, new: ObjView | None) -> bool:
    if old is None or new is None:
        return True
    was, now = volume_limit(old), volume_limit(new)
    return now is not None and (was is None or now > was)
