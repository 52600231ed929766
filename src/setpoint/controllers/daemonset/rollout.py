"""Decides which Pods a rollout replaces, and on which nodes a new Pod may surge.

Nodes with surplus Pods are left to `upkeep` and count as unavailable until then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from setpoint.controllers.availability import is_available
from setpoint.controllers.daemonset.placement import is_updated
from setpoint.controllers.daemonset.upkeep import is_leaving, surge_of
from setpoint.controllers.int_or_percent import scaled_value

Obj = dict[str, Any]
ByNode = Mapping[str, Sequence[Obj]]


class Step(NamedTuple):
    delete: list[Obj]
    create: list[str]
    """Names of the nodes on which Pods are to be created."""


class _Pair(NamedTuple):
    new: Obj | None
    old: Obj | None


def next_step(daemon_set: Obj, by_node: ByNode, wanted: Sequence[str], revision: str, now: datetime) -> Step:
    """Return the next step of the rollout. `wanted` are the nodes that should run a Pod."""
    rolling = daemon_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    surge = surge_of(daemon_set, len(wanted))
    unavailable = scaled_value(rolling.get("maxUnavailable") or 0, len(wanted), up=True)
    if wanted and not surge and not unavailable:
        unavailable = 1  # both are zero: allow one, or the rollout could not proceed
    pairs = {name: _pair(daemon_set, by_node.get(name, ()), revision) for name in dict.fromkeys((*by_node, *wanted))}
    min_ready = daemon_set["spec"].get("minReadySeconds", 0)
    if surge:
        return _surging(pairs, set(wanted), surge, min_ready, now)
    return Step(_replacing(pairs, unavailable, min_ready, now), [])


def _pair(daemon_set: Obj, pods: Sequence[Obj], revision: str) -> _Pair | None:
    """Return the old and new Pod of a node, or None if it has surplus Pods."""
    staying = [pod for pod in pods if not is_leaving(pod)]
    new = [pod for pod in staying if is_updated(daemon_set, pod, revision)]
    old = [pod for pod in staying if pod not in new]
    if len(new) > 1 or len(old) > 1:
        return None
    return _Pair(new[0] if new else None, old[0] if old else None)


def _replacing(pairs: Mapping[str, _Pair | None], limit: int, min_ready: int, now: datetime) -> list[Obj]:
    unavailable = 0
    broken, candidates = [], []
    for pair in pairs.values():
        if pair is None or (pair.new is None) == (pair.old is None):
            unavailable += 1
        elif pair.new is not None:
            unavailable += not is_available(pair.new, min_ready, now)
        elif pair.old is not None and not is_available(pair.old, min_ready, now):
            broken.append(pair.old)
            unavailable += 1
        elif pair.old is not None:
            candidates.append(pair.old)
    return [*broken, *candidates[: max(0, limit - unavailable)]]


def _surging(pairs: Mapping[str, _Pair | None], wanted: set[str], limit: int, min_ready: int, now: datetime) -> Step:
    surging = available = 0
    delete: list[Obj] = []
    misplaced: list[Obj] = []
    urgent: list[str] = []
    candidates: list[str] = []
    for name, pair in pairs.items():
        if pair is None:
            surging += 1
            continue
        first = pair.old or pair.new
        works = first is not None and is_available(first, min_ready, now)
        available += works
        if pair.old is None:
            continue
        if pair.new is not None:
            if is_available(pair.new, min_ready, now):
                delete.append(pair.old)
            else:
                surging += 1
        elif name not in wanted:
            (misplaced if works else delete).append(pair.old)
        else:
            (candidates if works else urgent).append(name)
    # Misplaced Pods are deleted only as others become available elsewhere.
    spare = max(0, available - len(wanted))
    return Step([*delete, *misplaced[:spare]], [*urgent, *candidates[: max(0, limit - surging)]])
