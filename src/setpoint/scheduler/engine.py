"""The computing part of the scheduler: snapshot and profiles. It needs NumPy and is imported when the first node
appears."""

from __future__ import annotations

from typing import Any

from setpoint.meta.clock import Ids
from setpoint.reconcile.keys import key_of
from setpoint.scheduler.config import Configuration
from setpoint.scheduler.diagnosis import Diagnosis, FitError, NoNodes
from setpoint.scheduler.framework import Cycle, Handle
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.scheduler.plugins.volume_binding import VolumeBinding
from setpoint.scheduler.preemption import Preemption, Victims
from setpoint.scheduler.profile import Choice, Profile
from setpoint.scheduler.queueing_hints import QueueingHints
from setpoint.scheduler.registry import build_profile
from setpoint.scheduler.snapshot import Snapshot
from setpoint.scheduler.volume_binder import VolumeReservation

Obj = dict[str, Any]

__all__ = ["Choice", "Diagnosis", "Engine", "FitError", "NoNodes", "Victims"]


class Engine:
    def __init__(
        self,
        configuration: Configuration,
        listers: Listers,
        nominations: Nominations,
        ids: Ids,
        queueing_hints: QueueingHints,
    ) -> None:
        self.snapshot = Snapshot()
        self._nominations = nominations
        self._ids = ids
        handle = Handle(self.snapshot, listers)
        self.profiles: dict[str, Profile] = {}
        self._preemption: dict[str, Preemption] = {}
        for wanted in configuration.profiles:
            profile = self.profiles[wanted.name] = build_profile(wanted, handle)
            self._preemption[wanted.name] = Preemption(profile, self.snapshot, nominations, listers, wanted)
            for plugin in profile.plugins:
                queueing_hints.register(wanted.name, plugin.name, plugin.interests())

    def decide(self, pod: Obj) -> tuple[Cycle, Choice]:
        """Choose a node for the Pod. Raise NoNodes or FitError."""
        cycle = Cycle(pod, self.snapshot.demands.of(pod), self.snapshot)
        profile = self.profiles[pod["spec"]["schedulerName"]]
        return cycle, profile.choose(cycle, self._nominations, self._ids.below)

    def preempt(self, pod: Obj, diagnosis: Diagnosis) -> Victims | None:
        """Return the Pods to evict so that the Pod fits, or None if no eviction would help. Records the result in the
        diagnosis."""
        return self._preemption[pod["spec"]["schedulerName"]].evaluate(pod, diagnosis, self._ids.below)

    def assume(self, cycle: Cycle, node: str) -> None:
        """Count the Pod on the node from now on."""
        pod = {**cycle.pod, "spec": {**cycle.pod["spec"], "nodeName": node}}
        self.snapshot.put(pod, node, assumed=True, demand=cycle.demand)

    def reserve(self, cycle: Cycle, node: str) -> VolumeReservation | None:
        """Reserve volumes. Return what must be written and awaited before the Pod can be bound, or None."""
        for plugin in self.profiles[cycle.pod["spec"]["schedulerName"]].filters:
            if isinstance(plugin, VolumeBinding):
                return plugin.reserve(cycle, node)
        return None

    def forget(self, pod: Obj) -> Obj | None:
        """Remove an assumed Pod that was not bound. Return it as it was assumed, or None."""
        key = key_of(pod)
        if not self.snapshot.is_assumed(key):
            return None
        placed = self.snapshot.remove(key)
        return placed.pod if placed is not None else None
