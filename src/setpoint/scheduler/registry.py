"""Builds profiles from their configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.scheduler.config import ProfileConfig
from setpoint.scheduler.framework import Handle, Plugin
from setpoint.scheduler.plugins.image_locality import ImageLocality
from setpoint.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from setpoint.scheduler.plugins.node_affinity import NodeAffinity
from setpoint.scheduler.plugins.node_name import NodeName
from setpoint.scheduler.plugins.node_ports import NodePorts
from setpoint.scheduler.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from setpoint.scheduler.plugins.node_resources_fit import DEFAULT_RESOURCES, NodeResourcesFit
from setpoint.scheduler.plugins.node_unschedulable import NodeUnschedulable
from setpoint.scheduler.plugins.node_volume_limits import NodeVolumeLimits
from setpoint.scheduler.plugins.pod_topology_spread import PodTopologySpread
from setpoint.scheduler.plugins.scheduling_gates import SchedulingGates
from setpoint.scheduler.plugins.taint_toleration import TaintToleration
from setpoint.scheduler.plugins.volume_binding import VolumeBinding
from setpoint.scheduler.plugins.volume_restrictions import VolumeRestrictions
from setpoint.scheduler.plugins.volume_zone import VolumeZone
from setpoint.scheduler.profile import Profile

Args = Any
Make = Callable[[Args, Handle], Any]


def build_profile(config: ProfileConfig, handle: Handle) -> Profile:
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
