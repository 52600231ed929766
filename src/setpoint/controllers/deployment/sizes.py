"""How large each ReplicaSet may be and should be: surge, unavailability, and the steps between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from setpoint.controllers.shares import share_of

Obj = dict[str, Any]


class Scaling(NamedTuple):
    replica_set: Obj
    to: int


def size(replica_set: Obj) -> int:
    return int(replica_set["spec"].get("replicas", 1))


def count(sets: Sequence[Obj], field: str) -> int:
    """The sum of a number in their statuses."""
    return sum((found.get("status") or {}).get(field, 0) for found in sets)


def is_rolling(deployment: Obj) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def limits(deployment: Obj) -> tuple[int, int]:
    """How many Pods there may be above the desired number, and how many of it may be unavailable."""
    desired = size(deployment)
    if not is_rolling(deployment):
        return 0, 0
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    surge = share_of(rolling.get("maxSurge", 0), desired, up=True)
    unavailable = share_of(rolling.get("maxUnavailable", 0), desired, up=False)
    if not surge and not unavailable:
        unavailable = 1  # both rounded to nothing: something has to give
    return surge, min(unavailable, desired)


def size_of_new(deployment: Obj, everything: Sequence[Obj], current: int) -> int:
    """What the new ReplicaSet may grow to; `everything` includes it, unless it is still to be made."""
    desired = size(deployment)
    if not is_rolling(deployment) or current > desired:
        return desired
    room = desired + limits(deployment)[0] - sum(size(found) for found in everything)
    return current + max(0, min(room, desired - current))


def scale_down_old(deployment: Obj, new: Obj, old: Sequence[Obj]) -> list[Scaling]:
    """First what is not available anyhow, then as many as the available Pods beyond the minimum allow."""
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
