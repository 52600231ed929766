"""The ReplicaSets of a Deployment: their templates, names and revisions, and their sizes during a rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.history import template_hash
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.kinds.numbers import scaled_value
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.meta.objects import Obj, ObjView
from setpoint.reconcile import EventRecorder
from setpoint.reconcile.keys import controller_of
from setpoint.reconcile.run import because

if TYPE_CHECKING:
    from setpoint.kinds.typed import Deployment, ReplicaSet

HASH_LABEL = "pod-template-hash"
_LONGEST_NAME = 253
REVISION = "deployment.kubernetes.io/revision"
_HISTORY = "deployment.kubernetes.io/revision-history"
_DESIRED = "deployment.kubernetes.io/desired-replicas"
_MAX = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    _HISTORY,
    _DESIRED,
    _MAX,
    "deprecated.deployment.rollback.to",
}
_LONGEST_HISTORY = 2000
REPLICA_SETS = builtin("replicasets", "apps")
_ALL = 2**31 - 1


class Scaling(NamedTuple):
    replica_set: ReplicaSet
    to: int


def size(obj: Deployment | ReplicaSet) -> int:
    return obj["spec"].get("replicas", 1)


def count(sets: Sequence[ReplicaSet], field: str) -> int:
    """Return the sum of a status field over the sets."""
    statuses: Iterable[ObjView] = (found.get("status") or {} for found in sets)
    return sum(status.get(field, 0) for status in statuses)


def is_rolling(deployment: Deployment) -> bool:
    return bool(deployment["spec"]["strategy"]["type"] == "RollingUpdate")


def limits(deployment: Deployment) -> tuple[int, int]:
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


def size_of_new(deployment: Deployment, everything: Sequence[ReplicaSet], current: int) -> int:
    """Return the size the new ReplicaSet may grow to. `everything` includes it, unless it does not exist yet."""
    desired = size(deployment)
    if not is_rolling(deployment) or current > desired:
        return desired
    allowed = desired + limits(deployment)[0] - sum(size(found) for found in everything)
    return current + max(0, min(allowed, desired - current))


def scale_down_old(deployment: Deployment, new: ReplicaSet, old: Sequence[ReplicaSet]) -> list[Scaling]:
    """Scale down unavailable Pods first, then as many as the number of available Pods allows."""
    wanted = {found["metadata"]["uid"]: size(found) for found in old}
    minimum = size(deployment) - limits(deployment)[1]
    new_unavailable = size(new) - count([new], "availableReplicas")
    budget = sum(wanted.values()) + size(new) - minimum - new_unavailable
    for found in old:
        uid = found["metadata"]["uid"]
        reduction = max(0, min(budget, wanted[uid] - count([found], "availableReplicas")))
        wanted[uid] -= reduction
        budget -= reduction
    spare = count([new, *old], "availableReplicas") - minimum
    spare = min(spare, max(budget, 0))
    for found in old:
        uid = found["metadata"]["uid"]
        reduction = max(0, min(spare, wanted[uid]))
        wanted[uid] -= reduction
        spare -= reduction
    scalings = (Scaling(found, wanted[found["metadata"]["uid"]]) for found in old)
    return [scaling for scaling in scalings if scaling.to != size(scaling.replica_set)]


def proportional(
    deployment: Deployment, active: Sequence[ReplicaSet], before: Mapping[str, int | None]
) -> list[Scaling]:
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


def _share(deployment: Deployment, found: ReplicaSet, most_before: int | None) -> int:
    desired, current = size(deployment), size(found)
    if not desired:
        return -current
    if not most_before:
        most_before = int((deployment.get("status") or {}).get("replicas", 0))
    if not most_before:
        return 0
    exact = current * (desired + limits(deployment)[0]) / most_before
    return int(exact + 0.5) - current


def set_name(deployment: str, template_hash: str) -> str:
    return f"{deployment[: _LONGEST_NAME - 1 - len(template_hash)]}-{template_hash}"


def same_template(left: ObjView, right: ObjView) -> bool:
    return bool(_without_hash(left) == _without_hash(right))


def _without_hash(template: ObjView) -> Obj:
    meta = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (meta.pop("labels", None) or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {key: value for key, value in meta.items() if value}, "labels": labels}


def split(deployment: Deployment, sets: Iterable[ReplicaSet]) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
    """Return the ReplicaSet of the current template (the oldest if there are several) and all others, oldest first."""
    by_age = sorted(sets, key=lambda found: (found["metadata"].get("creationTimestamp", ""), found["metadata"]["name"]))
    template = deployment["spec"]["template"]
    new = next((found for found in by_age if same_template(found["spec"]["template"], template)), None)
    return new, [found for found in by_age if found is not new]


# -- annotations: revisions and sizes ---------------------------------------------------------------------------------


def annotations_of(obj: ObjView) -> dict[str, str]:
    return dict(obj["metadata"].get("annotations") or {})


def _revision(obj: ObjView) -> int:
    text = annotations_of(obj).get(REVISION, "")
    return int(text) if text.isdigit() else 0


def next_revision(old: Iterable[ReplicaSet]) -> int:
    return max((_revision(found) for found in old), default=0) + 1


def _sizes(deployment: Deployment) -> dict[str, str]:
    desired = size(deployment)
    return {_DESIRED: str(desired), _MAX: str(desired + limits(deployment)[0])}


def desired_before(replica_set: ReplicaSet) -> int | None:
    """Return the Deployment's size when the set was last scaled, or None if it is unknown."""
    return _number(annotations_of(replica_set).get(_DESIRED, ""))


def max_before(replica_set: ReplicaSet) -> int | None:
    """Return the maximum number of Pods when the set was last scaled, or None if it is unknown."""
    return _number(annotations_of(replica_set).get(_MAX, ""))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) < 2**31 else None


def for_new_set(deployment: Deployment, current: Mapping[str, str], number: int) -> dict[str, str]:
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


# -- creating, scaling and deleting -----------------------------------------------------------------------------------


class HashTaken(Exception):
    """A different ReplicaSet has the name that the hash yields: the collision count must be increased."""


class CreationFailed(Exception):
    """A ReplicaSet could not be created; the message is for the status."""

    def __init__(self, message: str, cause: ApiError) -> None:
        super().__init__(message)
        self.cause = cause


class DeploymentSets:
    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(self, deployment: Deployment, old: list[ReplicaSet], number: int) -> tuple[ReplicaSet, bool]:
        """Return the set of the current template and whether it was just created. Raise HashTaken or CreationFailed."""
        made = _new_set(deployment, old, number)
        name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
        because("the Deployment's Pod template has no ReplicaSet" if old else "the Deployment has no ReplicaSet")
        try:
            created = cast("ReplicaSet", await self._client.create(made))
        except AlreadyExists:
            # From an earlier reconcile that the cache does not show yet, or a hash collision.
            there = cast("ReplicaSet", await self._client.get(REPLICA_SETS, name, namespace))
            owner = controller_of(there)
            if owner is None or owner["uid"] != deployment["metadata"]["uid"]:
                raise HashTaken(name) from None
            if not same_template(there["spec"]["template"], deployment["spec"]["template"]):
                raise HashTaken(name) from None
            return there, False
        except ApiError as error:
            if is_namespace_terminating(error):
                raise
            message = f'Failed to create new replica set "{name}": {error}'
            self._recorder.warning(deployment, "ReplicaSetCreateError", message)
            raise CreationFailed(message, error) from error
        if size(created):
            self._record_scaling(deployment, name, 0, size(created))
        return created, True

    async def sync_metadata(self, deployment: Deployment, new: ReplicaSet, number: int) -> ReplicaSet:
        """Copy annotations and minReadySeconds from the Deployment, which need no rollout."""
        wanted = for_new_set(deployment, annotations_of(new), number)
        min_ready = deployment["spec"].get("minReadySeconds", 0)
        if wanted == annotations_of(new) and min_ready == new["spec"].get("minReadySeconds", 0):
            return new
        changed = {
            **new,
            "metadata": {**new["metadata"], "annotations": wanted},
            "spec": {**new["spec"], "minReadySeconds": min_ready},
        }
        return cast("ReplicaSet", await self._client.update(changed))

    async def scale(self, deployment: Deployment, scaling: Scaling) -> None:
        found, to = scaling
        before = size(found)
        noted = {**annotations_of(found), **_sizes(deployment)}
        if to == before and noted == annotations_of(found):
            return
        changed = {
            **found,
            "metadata": {**found["metadata"], "annotations": noted},
            "spec": {**found["spec"], "replicas": to},
        }
        because(f"this ReplicaSet gets {to} of {size(deployment)} wanted replicas")
        # An update, not a patch: it must fail if the set was changed meanwhile.
        await self._client.update(changed)
        if to != before:
            self._record_scaling(deployment, found["metadata"]["name"], before, to)

    async def prune_history(self, deployment: Deployment, old: Iterable[ReplicaSet]) -> None:
        limit = deployment["spec"].get("revisionHistoryLimit")
        not_deleted = [found for found in old if "deletionTimestamp" not in found["metadata"]]
        if limit is None or limit == _ALL or len(not_deleted) <= limit:
            return
        for found in sorted(not_deleted, key=_revision)[: len(not_deleted) - limit]:
            meta, status = found["metadata"], found.get("status") or {}
            settled = status.get("observedGeneration", 0) >= meta["generation"]
            if size(found) or status.get("replicas", 0) or not settled:
                continue
            because(f"{len(not_deleted)} old ReplicaSets exist, {limit} are retained")
            with suppress(NotFound):
                await self._client.delete(REPLICA_SETS, meta["name"], meta["namespace"], uid=meta["uid"])

    def _record_scaling(self, deployment: Deployment, name: str, before: int, after: int) -> None:
        direction = "up" if after > before else "down"
        text = f"Scaled {direction} replica set {name} from {before} to {after}"
        self._recorder.normal(deployment, "ScalingReplicaSet", text)


def _new_set(deployment: Deployment, old: list[ReplicaSet], number: int) -> Obj:
    spec, meta = deployment["spec"], deployment["metadata"]
    template = spec["template"]
    digest = template_hash(template, (deployment.get("status") or {}).get("collisionCount"))
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
    selector = spec["selector"]
    made_spec = {
        "replicas": size_of_new(deployment, old, 0),
        "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}},
        "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
    }
    if spec.get("minReadySeconds"):
        made_spec["minReadySeconds"] = spec["minReadySeconds"]
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": set_name(meta["name"], digest),
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**for_new_set(deployment, {}, number), **_sizes(deployment)},
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": made_spec,
    }
