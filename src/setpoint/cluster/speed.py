"""Shorter waits: the settings that an administrator would change so that a cluster reacts sooner.

Only settings change, and all of them are upstream's: what objects say of times stays true."""

from __future__ import annotations

from dataclasses import replace

from setpoint.cluster.config import ApiServerConfig
from setpoint.controllers.options import ControllerOptions
from setpoint.node.options import FleetOptions, NodeTemplate

_PERIODS = (
    "node_monitor_period", "node_monitor_grace_period", "node_startup_grace_period",
    "horizontal_pod_autoscaler_sync_period", "horizontal_pod_autoscaler_downscale_stabilization",
    "horizontal_pod_autoscaler_cpu_initialization_period", "horizontal_pod_autoscaler_initial_readiness_delay",
)  # fmt: skip
_RATES = ("node_eviction_rate", "secondary_node_eviction_rate")


def faster_controllers(options: ControllerOptions, speed: int) -> ControllerOptions:
    if speed == 1:
        return options
    changed = {name: getattr(options, name) / speed for name in _PERIODS}
    changed |= {name: getattr(options, name) * speed for name in _RATES}
    return replace(options, **changed)


def faster_fleet(options: FleetOptions) -> FleetOptions:
    """Nodes renew their Leases sooner, unless the fleet's file says how often."""
    if options.pace.speed == 1 or options.template.lease_seconds != NodeTemplate().lease_seconds:
        return options
    lease = max(options.template.lease_seconds // options.pace.speed, 1)
    return replace(options, template=replace(options.template, lease_seconds=lease))


def faster_server(config: ApiServerConfig, speed: int) -> ApiServerConfig:
    """Pods leave nodes that are not ready sooner, unless the flags say when."""
    if speed == 1:
        return config
    usual = ApiServerConfig(config.data_dir)
    fields = ("default_not_ready_toleration_seconds", "default_unreachable_toleration_seconds")
    kept = {name: getattr(config, name) for name in fields}
    return replace(config, **{name: now // speed if now == getattr(usual, name) else now for name, now in kept.items()})
