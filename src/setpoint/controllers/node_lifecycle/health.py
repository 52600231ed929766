"""The last heartbeat of a node, and its conditions when that is too long ago."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from setpoint.controllers.conditions import condition
from setpoint.meta.times import format_time, parse_time

Obj = dict[str, Any]

_WATCHED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions that become Unknown. NetworkUnavailable is not reported by the kubelet and therefore not included."""


@dataclass(slots=True)
class Health:
    """The health of a node, measured with this process's own clock, because node clocks may be wrong. After a restart
    every node gets the full grace period again."""

    last_heartbeat: float
    ready: Obj | None
    """The Ready condition at the last check; None if the node had none."""
    renewed: str = ""
    """The renewTime of the Lease at the last check; empty if there is none."""


def observe(
    health: Health | None, node: Mapping[str, Any], lease: Mapping[str, Any] | None, at: float, now: datetime
) -> Health:
    """Return the health of a node in this state at `at` (monotonic seconds), which is `now`."""
    ready = condition(node, "Ready")
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
    return health


def unknown_conditions(node: Mapping[str, Any], now: datetime) -> list[Obj] | None:
    """Return the conditions of a node without heartbeats, or None if they are Unknown already."""
    stamp = format_time(now)
    conditions: list[Obj] = list((node.get("status") or {}).get("conditions") or ())
    ready = condition(node, "Ready")
    if ready is not None and ready["status"] == "Unknown":
        return None
    changed: list[Obj] = []
    there = set()
    for found in conditions:
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
