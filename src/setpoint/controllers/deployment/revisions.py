"""The annotations in which a Deployment and its ReplicaSets store revisions and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from setpoint.controllers.deployment.sizes import limits, size

Obj = dict[str, Any]

REVISION = "deployment.kubernetes.io/revision"
_HISTORY = "deployment.kubernetes.io/revision-history"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MAX = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration", REVISION, _HISTORY, _DESIRED, _MAX,
    "deprecated.deployment.rollback.to",
}  # fmt: skip
_LONGEST_HISTORY = 2000


def annotations_of(obj: Obj) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def revision(obj: Obj) -> int:
    text = annotations_of(obj).get(REVISION, "")
    return int(text) if text.isdigit() else 0


def next_revision(old: Iterable[Obj]) -> int:
    return max((revision(found) for found in old), default=0) + 1


def sizes(deployment: Obj) -> dict[str, str]:
    desired = size(deployment)
    return {_DESIRED: str(desired), _MAX: str(desired + limits(deployment)[0])}


def desired_before(replica_set: Obj) -> int | None:
    """Return the Deployment's size when the set was last scaled, or None if it is unknown."""
    return _number(annotations_of(replica_set).get(_DESIRED, ""))


def max_before(replica_set: Obj) -> int | None:
    """Return the maximum number of Pods when the set was last scaled, or None if it is unknown."""
    return _number(annotations_of(replica_set).get(_MAX, ""))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) < 2**31 else None


def for_new_set(deployment: Obj, current: Mapping[str, str], number: int) -> dict[str, str]:
    """Return the annotations of the current ReplicaSet. Its revision only increases, and former revisions are
    recorded."""
    wanted = dict(current)
    wanted.update({key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED})
    before = current.get(REVISION, "")
    if (int(before) if before.isdigit() else 0) < number:
        wanted[REVISION] = str(number)
        if before:
            past = [part for part in current.get(_HISTORY, "").split(",") if part] + [before]
            while len(",".join(past)) > _LONGEST_HISTORY:
                past.pop(0)
            wanted[_HISTORY] = ",".join(past)
    return wanted
