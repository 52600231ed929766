"""The computing part of the scheduler: snapshot, profiles and their plugins.

It needs NumPy and is imported when the first node appears.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from setpoint.meta.clock import Ids
from setpoint.reconcile.keys import key_of
from setpoint.scheduler.cluster_events import QueueingHints
from setpoint.scheduler.config import Configuration, ProfileConfig
from setpoint.scheduler.framework import Cycle, Diagnosis, FitError, Handle, NoNodes, Plugin, Rejected
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.scheduler.plugins.image_locality import ImageLocality
from setpoint.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from setpoint.scheduler.plugins.node_affinity import NodeAffinity
from setpoint.scheduler.plugins.node_name import NodeName
from setpoint.scheduler.plugins.node_ports import NodePorts
from setpoint.scheduler.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from setpoint.scheduler.plugins.node_resources_fit import DEFAULT_RESOURCES, NodeResourcesFit
from setpoint.scheduler.plugins.node_unschedulable import NodeUnschedulable
from setpoint.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from setpoint.scheduler.plugins.pod_topology_spread import PodTopologySpread
from setpoint.scheduler.plugins.scheduling_gates import SchedulingGates
from setpoint.scheduler.plugins.taint_toleration import TaintToleration
from setpoint.scheduler.plugins.volume_binding import VolumeBinding
from setpoint.scheduler.plugins.volume_restrictions import VolumeRestrictions
from setpoint.scheduler.plugins.volume_zone import VolumeZone
from setpoint.scheduler.preemption import Preemption, Victims
from setpoint.scheduler.profile import Choice, Profile
from setpoint.scheduler.snapshot import Snapshot
from setpoint.scheduler.volume_binder import VolumeReservation

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

__all__ = ["Choice", "Diagnosis", "Engine", "FitError", "NoNodes", "Victims"]


Args = Any
Make = Callable[[Args, Handle], Any]


def _build_profile(config: ProfileConfig, handle: Handle) -> Profile:
    made: dict[str, Any] = {}

    def plugin(name: str) -> Any:
        if name not in made:
            made[name] = _PLUGINS[name](config.args(name), handle)
        return made[name]

    others: list[Plugin] = [SchedulingGates()] if config.gates else []
    return Profile(
        config.name,
        [plugin(name) for name in config.filters],
        [(plugin(name), weight) for name, weight in config.scores],
        others,
        preempts=config.preempts,
    )


def _fit(args: Args, handle: Handle) -> NodeResourcesFit:
    strategy = args.get("scoringStrategy") or {}
    shape = (strategy.get("requestedToCapacityRatio") or {}).get("shape") or ()
    return NodeResourcesFit(
        strategy.get("type") or "LeastAllocated",
        _resources(strategy),
        [(point.get("utilization", 0), point.get("score", 0)) for point in shape],
        args.get("ignoredResources") or (),
        args.get("ignoredResourceGroups") or (),
    )


def _resources(args: Args) -> tuple[tuple[str, int], ...]:
    given = args.get("resources")
    return tuple((entry["name"], int(entry.get("weight") or 1)) for entry in given) if given else DEFAULT_RESOURCES


def _spread(args: Args, handle: Handle) -> PodTopologySpread:
    listed = args.get("defaultingType") == "List"
    return PodTopologySpread(handle, args.get("defaultConstraints") or () if listed else None)


def _affinity(args: Args, handle: Handle) -> InterPodAffinity:
    weight = args.get("hardPodAffinityWeight")
    return InterPodAffinity(
        handle, 1 if weight is None else int(weight), bool(args.get("ignorePreferredTermsOfExistingPods"))
    )


def _volume_binding(args: Args, handle: Handle) -> VolumeBinding:
    timeout = args.get("bindTimeoutSeconds")
    return VolumeBinding(handle) if timeout is None else VolumeBinding(handle, float(timeout))


_PLUGINS: dict[str, Make] = {
    "NodeName": lambda args, handle: NodeName(),
    "NodeUnschedulable": lambda args, handle: NodeUnschedulable(),
    "TaintToleration": lambda args, handle: TaintToleration(),
    "NodeAffinity": lambda args, handle: NodeAffinity(args.get("addedAffinity")),
    "NodePorts": lambda args, handle: NodePorts(),
    "NodeResourcesFit": _fit,
    "VolumeRestrictions": lambda args, handle: VolumeRestrictions(handle),
    "NodeVolumeLimits": lambda args, handle: NodeVolumeLimits(handle),
    "VolumeBinding": _volume_binding,
    "VolumeZone": lambda args, handle: VolumeZone(handle),
    "PodTopologySpread": _spread,
    "InterPodAffinity": _affinity,
    "NodeResourcesBalancedAllocation": lambda args, handle: NodeResourcesBalancedAllocation(_resources(args)),
    "ImageLocality": lambda args, handle: ImageLocality(),
}


class Engine:
    NoNodes, FitError = NoNodes, FitError
    """The exceptions of `decide`, for callers that do not import this module."""

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
            profile = self.profiles[wanted.name] = _build_profile(wanted, handle)
            self._preemption[wanted.name] = Preemption(profile, self.snapshot, nominations, listers, wanted)
            for plugin in profile.plugins:
                queueing_hints.register(wanted.name, plugin.name, plugin.interests())

    def decide(self, pod: Pod) -> tuple[Cycle, Choice]:
        """Choose a node for the Pod. Raise NoNodes or FitError."""
        cycle = Cycle(pod, self.snapshot.demands.of(pod), self.snapshot)
        profile = self.profiles[pod["spec"]["schedulerName"]]
        return cycle, profile.choose(cycle, self._nominations, self._ids.below)

    def verdicts(self, pod: Pod, limit: int) -> list[tuple[str, str]]:
        """Return why the Pod does not fit on each of the first nodes by name, in the present state; empty if it fits.
        A Pod that fits nowhere for a reason of its own has one verdict, without a node."""
        cycle = Cycle(pod, self.snapshot.demands.of(pod), self.snapshot)
        profile = self.profiles[pod["spec"]["schedulerName"]]
        try:
            limits = profile.prefilter(cycle)
        except Rejected as rejection:
            return [("", str(rejection))]
        found = []
        for name, slot in sorted(cycle.table.slots.items())[:limit]:
            outside = [plugin for plugin, nodes in limits.items() if name not in nodes]
            reasons = profile.why_not(cycle, slot, self._nominations)
            found.append((name, f"not accepted by {outside[0]}" if outside else ", ".join(reasons)))
        return found

    def preempt(self, pod: Pod, diagnosis: Diagnosis) -> Victims | None:
        """Return the Pods to evict so that the Pod fits, or None if no eviction would help. Records the result in the
        diagnosis."""
        return self._preemption[pod["spec"]["schedulerName"]].evaluate(pod, diagnosis, self._ids.below)

    def assume(self, cycle: Cycle, node: str) -> None:
        """Count the Pod on the node from now on."""
        pod: Pod = {**cycle.pod, "spec": {**cycle.pod["spec"], "nodeName": node}}
        self.snapshot.put(pod, node, assumed=True, demand=cycle.demand)

    def reserve(self, cycle: Cycle, node: str) -> VolumeReservation | None:
        """Reserve volumes. Return what must be written and awaited before the Pod can be bound, or None."""
        for plugin in self.profiles[cycle.pod["spec"]["schedulerName"]].filters:
            if isinstance(plugin, VolumeBinding):
                return plugin.reserve(cycle, node)
        return None

    def forget(self, pod: Pod) -> Pod | None:
        """Remove an assumed Pod that was not bound. Return it as it was assumed, or None."""
        key = key_of(pod)
        if not self.snapshot.is_assumed(key):
            return None
        placed = self.snapshot.remove(key)
        return placed.pod if placed is not None else None
