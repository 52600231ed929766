"""Computes the sizes of ReplicaSets during a rollout from surge and unavailability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from setpoint.controllers.int_or_percent import scaled_value

Obj = dict[str, Any]


class Scaling(NamedTuple):
    replica_set: Obj
    to: int


def size(replica_set: Obj) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def count(sets: Sequence[Obj], field: str) -> int:
    """Return the sum of a status field over the sets."""
    return sum((found.get("status") or {}).get(field, 0) for found in sets)


def is_rolling(deployment: Obj) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def limits(deployment: Obj) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable as numbers of Pods."""
    desired = size(deployment)
    if not is_rolling(deployment):
        return 0, 0
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    surge = scaled_value(rolling.get("maxSurge", 0), desired, up=True)
    unavailable = scaled_value(rolling.get("maxUnavailable", 0), desired, up=False)
    if not surge and not unavailable:
        unavailable = 1  # both round to zero: allow one, or the rollout could not proceed
    return surge, min(unavailable, desired)


def size_of_new(deployment: Obj, everything: Sequence[Obj], current: int) -> int:
    """Return the size the new ReplicaSet may grow to. `everything` includes it, unless it does not exist yet."""
    desired = size(deployment)
    if not is_rolling(deployment) or current > desired:
        return desired
    room = desired + limits(deployment)[0] - sum(size(found) for found in everything)
    return current + max(0, min(room, desired - current))


def scale_down_old(deployment: Obj, new: Obj, old: Sequence[Obj]) -> list[Scaling]:
    """Scale down unavailable Pods first, then as many as the number of available Pods allows."""
    wanted = {found["metadata"]["uid"]: size(found) for found in old}
    minimum = size(deployment) - limits(deployment)[1]
    new_unavailable = size(new) - count([new], "availableReplicas")
    budget = sum(wanted.values()) + size(new) - minimum - new_unavailable
    for found in old:
        uid = found["metadata"]["uid"]
        taken = max(0, min(budget, wanted[uid] - count([found], "availableReplicas")))
        wanted[uid] -= taken
        budget -= taken
    spare = count([new, *old], "availableReplicas") - minimum
    spare = min(spare, max(budget, 0))
    for found in old:
        uid = found["metadata"]["uid"]
        taken = max(0, min(spare, wanted[uid]))
        wanted[uid] -= taken
        spare -= taken
    scalings = (Scaling(found, wanted[found["metadata"]["uid"]]) for found in old)
    return [scaling for scaling in scalings if scaling.to != size(scaling.replica_set)]


def proportional(deployment: Obj, active: Sequence[Obj], before: Mapping[str, int | None]) -> list[Scaling]:
    """Distribute a new size over all sets in the middle of a rollout, in proportion to their sizes.

    `before` has by name the maximum number of Pods when the set was last scaled. The result has every set, also those
    whose size stays, because their annotations change.
    """
    desired = size(deployment)
    allowed = desired + limits(deployment)[0] if desired else 0
    to_add = allowed - sum(size(found) for found in active)
    by_age = sorted(
        active, key=lambda found: (found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"])
    )
    # The largest first; among equals the newest grows and the oldest shrinks.
    ordered = sorted(reversed(by_age) if to_add > 0 else by_age, key=size, reverse=True)
    scalings, added = [], 0
    for found in ordered:
        share = _share(deployment, found, before.get(found["metadata"]["name"])) if to_add != added else 0
        share = min(share, to_add - added) if to_add > 0 else max(share, to_add - added)
        added += share
        scalings.append(Scaling(found, size(found) + share))
    if scalings and to_add != added:
        scalings[0] = Scaling(scalings[0].replica_set, max(0, scalings[0].to + to_add - added))
    return scalings


def _share(deployment: Obj, found: Obj, most_before: int | None) -> int:
    desired, current = size(deployment), size(found)
    if not desired:
        return -current
    if not most_before:
        most_before = int((deployment.get("status") or {}).get("replicas", 0))
    if not most_before:
        return 0
    exact = current * (desired + limits(deployment)[0]) / most_before
    return int(exact + 0.5) - current
