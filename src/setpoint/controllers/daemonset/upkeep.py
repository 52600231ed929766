"""Finds missing and surplus Pods of a DaemonSet on a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from setpoint.controllers.availability import is_available
from setpoint.controllers.daemonset.placement import Verdict
from setpoint.controllers.history import REVISION_LABEL
from setpoint.controllers.int_or_percent import scaled_value
from setpoint.controllers.pods import is_ready, phase

Obj = dict[str, Any]


@dataclass(slots=True)
class Needs:
    """The changes that one node needs."""

    is_empty: bool = False
    """A Pod is to be created."""
    surplus: list[Obj] = field(default_factory=list)
    """Surplus or misplaced Pods, to be deleted."""
    failed: list[Obj] = field(default_factory=list)
    succeeded: list[Obj] = field(default_factory=list)


def is_leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def by_age(pods: Iterable[Obj]) -> list[Obj]:
    """Sort scheduled Pods before unscheduled ones, oldest first."""
    return sorted(
        pods,
        key=lambda pod: (
            not pod["spec"].get("nodeName"),
            pod["metadata"].get("creationTimestamp", ""),
            pod["metadata"]["name"],
        ),
    )


def surge_of(daemon_set: Obj, desired: int) -> int:
    strategy = daemon_set["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return 0
    return scaled_value((strategy.get("rollingUpdate") or {}).get("maxSurge") or 0, desired, up=True)


def needs_of(daemon_set: Obj, verdict: Verdict, pods: Sequence[Obj], revision: str, now: datetime) -> Needs:
    """Return the needs of a node. `pods` are the set's Pods on it, `revision` is the hash of the current template."""
    needs = Needs()
    if verdict.should_run and not pods:
        needs.is_empty = True
    elif not verdict.may_stay:
        needs.surplus = [pod for pod in pods if not is_leaving(pod)]
    else:
        running: list[Obj] = []
        for pod in pods:
            if not is_leaving(pod):
                ended = {"Failed": needs.failed, "Succeeded": needs.succeeded}.get(phase(pod))
                (running if ended is None else ended).append(pod)
        if surge_of(daemon_set, 1) <= 0:
            needs.surplus = by_age(running)[1:]
        elif running:
            needs.surplus = _beyond_surge(daemon_set, by_age(running), revision, now)
        else:
            # With surge, the new Pod need not wait for the end of the old one.
            needs.is_empty = verdict.should_run
    return needs


def _beyond_surge(daemon_set: Obj, running: Sequence[Obj], revision: str, now: datetime) -> list[Obj]:
    """Return surplus Pods of a surging node. An old and a new Pod may coexist while the old one is available and the
    new one is not yet."""
    if len(running) <= 1:
        return []
    new = [pod for pod in running if (pod["metadata"].get("labels") or {}).get(REVISION_LABEL) == revision]
    old = [pod for pod in running if pod not in new]
    surplus = [pod for pod in running if pod not in (*new[:1], *old[:1])]
    if new and old:
        min_ready = daemon_set["spec"].get("minReadySeconds", 0)
        if not is_ready(old[0]) or is_available(new[0], min_ready, now):
            surplus.append(old[0])
    return surplus


def for_missing_nodes(by_node: Mapping[str, Sequence[Obj]], nodes: Mapping[str, Any]) -> list[Obj]:
    """Return Pods for nodes that no longer exist, which no other controller deletes."""
    return [
        pod for name, pods in by_node.items() if name not in nodes for pod in pods if not pod["spec"].get("nodeName")
    ]
