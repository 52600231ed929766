"""Computes the status of a DaemonSet from nodes and Pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from setpoint.controllers.availability import is_available
from setpoint.controllers.daemonset.placement import is_updated
from setpoint.controllers.daemonset.upkeep import by_age
from setpoint.controllers.pods import is_ready

Obj = dict[str, Any]

_ALWAYS_SHOWN = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")


def status_of(
    daemon_set: Obj,
    should_run: Mapping[str, bool],
    by_node: Mapping[str, Sequence[Obj]],
    revision: str,
    now: datetime,
) -> Obj:
    """Compute the status. `should_run` has an entry for every node."""
    before = daemon_set.get("status") or {}
    min_ready = daemon_set["spec"].get("minReadySeconds", 0)
    desired = current = misplaced = ready = updated = available = 0
    for name, wanted in should_run.items():
        pods = by_node.get(name)
        if not wanted:
            misplaced += bool(pods)
            continue
        desired += 1
        if not pods:
            continue
        current += 1
        pod = pods[0] if len(pods) == 1 else by_age(pods)[0]
        if is_ready(pod):
            ready += 1
            available += is_available(pod, min_ready, now)
        updated += is_updated(daemon_set, pod, revision)
    counts = {
        "currentNumberScheduled": current,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    status: Obj = {name: count for name, count in counts.items() if count or name in _ALWAYS_SHOWN}
    status["observedGeneration"] = daemon_set["metadata"]["generation"]
    for name in ("collisionCount", "conditions"):
        if name in before:
            status[name] = before[name]
    return status
