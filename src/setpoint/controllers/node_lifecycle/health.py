"""The health of nodes: their last heartbeats, and the conditions of nodes that send none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from setpoint.controllers.node_lifecycle.taints import zone_of
from setpoint.meta.conditions import condition_of, conditions_of
from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_time, parse_time

if TYPE_CHECKING:
    from setpoint.kinds.typed import Lease, Node

_WATCHED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions that become Unknown. NetworkUnavailable is not reported by the kubelet and therefore not included."""


@dataclass(slots=True)
class Health:
    """The health of a node, measured with this process's own clock, because node clocks may be wrong. After a restart
    every node gets the full grace period again."""

    last_heartbeat: float
    ready: ObjView | None
    """The Ready condition at the last check; None if the node had none."""
    renewed: str = ""
    """The renewTime of the Lease at the last check; empty if there is none."""
    zone: str = ""
    observed: tuple[Node, Lease | None] | None = None
    """The objects that this was computed from; None if only a part of it was."""


def observe(health: Health | None, node: Node, lease: Lease | None, at: float, now: datetime) -> Health:
    """Return the health of a node in this state at `at` (monotonic seconds), which is `now`."""
    ready = condition_of(node, "Ready")
    if health is None:
        last_heartbeat = at
        if ready is None:
            last_heartbeat = at - (now - parse_time(node["metadata"]["creationTimestamp"])).total_seconds()
        health = Health(last_heartbeat, ready)
    elif (health.ready or {}).get("lastHeartbeatTime") != (ready or {}).get("lastHeartbeatTime"):
        health.last_heartbeat = at
    health.ready = ready
    renewed = ((lease or {}).get("spec") or {}).get("renewTime") or ""
    # Any other time is a heartbeat, even an earlier one: the node's clock may have been set back.
    if renewed and renewed != health.renewed:
        health.renewed = renewed
        health.last_heartbeat = at
    health.zone = zone_of(node)
    health.observed = (node, lease)
    return health


def unknown_conditions(node: Node, now: datetime) -> list[ObjView] | None:
    """Return the conditions of a node without heartbeats, or None if they are Unknown already."""
    stamp = format_time(now)
    ready = condition_of(node, "Ready")
    if ready is not None and ready["status"] == "Unknown":
        return None
    changed: list[ObjView] = []
    there = set()
    for found in conditions_of(node):
        there.add(found["type"])
        if found["type"] in _WATCHED and found["status"] != "Unknown":
            found = {
                **found,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": stamp,
            }
        changed.append(found)
    for kind in _WATCHED:
        if kind not in there:
            changed.append(
                {
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                    "lastTransitionTime": stamp,
                }
            )
    return changed
