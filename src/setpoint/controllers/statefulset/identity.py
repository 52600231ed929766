"""The identity of a StatefulSet's Pods: names, ordinals, claims and revisions, and the Pod of an ordinal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from setpoint.client import Client
from setpoint.controllers.history import (
    REVISION_LABEL,
    REVISIONS,
    History,
    data_of,
    has_template_of,
    number,
    revision_hash,
    revision_of,
)
from setpoint.controllers.ownership import controller_reference
from setpoint.controllers.pod_control import pod_from
from setpoint.meta.errors import AlreadyExists
from setpoint.meta.objects import Obj, ObjView

if TYPE_CHECKING:
    from setpoint.kinds.typed import PersistentVolumeClaim, Pod
    from setpoint.kinds.typed.pod import PodSpec
    from setpoint.kinds.typed.volumes import Volume

_RETAIN, _DELETE = "Retain", "Delete"
_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL = "apps.kubernetes.io/pod-index"
_POD_NAME = re.compile(r"(.*)-([0-9]+)", re.ASCII)
_MAX_ORDINAL = 2**31 - 1
_HASH_LABEL = "controller.kubernetes.io/hash"
_LONGEST_PREFIX = 223


# -- claims -----------------------------------------------------------------------------------------------------------
# A claim outlives its Pod and its set unless the retention policy says otherwise. In that case it gets an owner
# reference and the garbage collector deletes it: to the set if it is deleted with the set, to the Pod once that Pod is
# beyond the size of the set.


def _claim_templates(stateful_set: Obj) -> list[Obj]:
    return stateful_set["spec"].get("volumeClaimTemplates") or []


def _claim_name(stateful_set: Obj, template: Obj, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{stateful_set['metadata']['name']}-{ordinal}"


def claims_for(stateful_set: Obj, ordinal: int) -> list[Obj]:
    matched = stateful_set["spec"]["selector"].get("matchLabels") or {}
    namespace = stateful_set["metadata"]["namespace"]
    made = []
    for template in _claim_templates(stateful_set):
        meta = {
            **template["metadata"],
            "name": _claim_name(stateful_set, template, ordinal),
            "namespace": namespace,
            "labels": {**(template["metadata"].get("labels") or {}), **matched},
        }
        made.append({**template, "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta})
    return made


def retention(stateful_set: Obj) -> tuple[str, str]:
    """Return the retention policies (when deleted, when scaled)."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted", _RETAIN), policy.get("whenScaled", _RETAIN)


def belongs_to_predecessor(claim: PersistentVolumeClaim, obj: ObjView) -> bool:
    """Return whether the claim belongs to an earlier object with this name and will be garbage-collected."""
    for reference in _references(claim):
        if _names(reference, obj):
            return bool(reference["uid"] != obj["metadata"].get("uid"))
    return False


def has_conflicting_controller(claim: PersistentVolumeClaim, stateful_set: Obj, pod: Pod) -> bool:
    """Return whether another controller owns the claim, so that the retention policy cannot be applied."""
    if retention(stateful_set) == (_RETAIN, _RETAIN):
        return False
    for reference in _references(claim):
        ours = next((each for each in (stateful_set, pod) if _names(reference, each)), None)
        if ours is not None:
            if reference["uid"] != ours["metadata"].get("uid"):
                return True
        elif reference.get("controller"):
            return True
    return False


def owners_up_to_date(claim: PersistentVolumeClaim, stateful_set: Obj, pod: Pod, *, beyond: bool) -> bool:
    """Return whether the claim has the right owners. `beyond`: the Pod is outside the size of the set."""
    if belongs_to_predecessor(claim, stateful_set) or belongs_to_predecessor(claim, pod):
        return True  # leave it alone: its owner is gone, and it will be garbage-collected
    owned_by_set, owned_by_pod = _is_owner(claim, stateful_set), _is_owner(claim, pod)
    if has_conflicting_controller(claim, stateful_set, pod):
        return not (owned_by_set or owned_by_pod)
    uids = {stateful_set["metadata"]["uid"], pod["metadata"].get("uid")}
    if any(each["uid"] in uids and not each.get("controller") for each in _references(claim)):
        return False
    return (owned_by_set, owned_by_pod) == _wanted_owners(stateful_set, beyond=beyond)


def with_owners(claim: PersistentVolumeClaim, stateful_set: Obj, pod: Pod, *, beyond: bool) -> Obj:
    retained = [each for each in _references(claim) if not (_names(each, stateful_set) or _names(each, pod))]
    if not has_conflicting_controller(claim, stateful_set, pod):
        by_set, by_pod = _wanted_owners(stateful_set, beyond=beyond)
        if by_set:
            retained.append(controller_reference(stateful_set))
        if by_pod:
            retained.append(controller_reference(pod))
    meta = {key: value for key, value in claim["metadata"].items() if key != "ownerReferences"}
    return {**claim, "metadata": {**meta, **({"ownerReferences": retained} if retained else {})}}


def _wanted_owners(stateful_set: Obj, *, beyond: bool) -> tuple[bool, bool]:
    """Return whether the set and whether the Pod should own the claim."""
    when_deleted, when_scaled = retention(stateful_set)
    by_pod = when_scaled == _DELETE and beyond
    return when_deleted == _DELETE and not by_pod, by_pod


def _references(claim: PersistentVolumeClaim) -> Sequence[ObjView]:
    return claim["metadata"].get("ownerReferences") or ()


def _is_owner(claim: PersistentVolumeClaim, owner: ObjView) -> bool:
    uid = owner["metadata"].get("uid")
    return any(reference["uid"] == uid for reference in _references(claim))


def _names(reference: ObjView, obj: ObjView) -> bool:
    return bool(
        (reference["apiVersion"], reference["kind"], reference["name"])
        == (obj["apiVersion"], obj["kind"], obj["metadata"]["name"])
    )


# -- Pods -------------------------------------------------------------------------------------------------------------


def parent_and_ordinal(pod: Pod) -> tuple[str, int]:
    """Parse set name and ordinal from the Pod's name; an ordinal of -1 means none."""
    found = _POD_NAME.fullmatch(pod["metadata"]["name"])
    if found is None:
        return "", -1
    ordinal = int(found[2])
    return found[1], ordinal if ordinal <= _MAX_ORDINAL else -1


def ordinal_of(pod: Pod) -> int:
    return parent_and_ordinal(pod)[1]


def is_member(stateful_set: Obj, pod: Pod) -> bool:
    return bool(parent_and_ordinal(pod)[0] == stateful_set["metadata"]["name"])


def size(stateful_set: Obj) -> int:
    return int(stateful_set["spec"].get("replicas", 1))


def start(stateful_set: Obj) -> int:
    return int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))


def in_range(stateful_set: Obj, pod: Pod) -> bool:
    first = start(stateful_set)
    return first <= ordinal_of(pod) < first + size(stateful_set)


def revision_of_pod(pod: Pod) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def partition(stateful_set: Obj) -> int:
    rolling = stateful_set["spec"]["updateStrategy"].get("rollingUpdate") or {}
    return int(rolling.get("partition", 0))


def follows_current(stateful_set: Obj, ordinal: int) -> bool:
    """Return whether a missing Pod is created from the current revision rather than from the update revision."""
    strategy = stateful_set["spec"]["updateStrategy"]
    first = start(stateful_set)
    if strategy.get("rollingUpdate") is not None:
        return ordinal < first + partition(stateful_set)
    current = int((stateful_set.get("status") or {}).get("currentReplicas", 0))
    return strategy["type"] == "RollingUpdate" and ordinal < first + current


def new_pod(stateful_set: Obj, template: Obj, revision: str, ordinal: int) -> Pod:
    """Return the Pod to create; it has no status yet."""
    spec = stateful_set["spec"]
    made = pod_from(template, stateful_set)
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    labels = {**(made["metadata"].get("labels") or {}), **_identity(name, ordinal), REVISION_LABEL: revision}
    pod_spec = {**made["spec"], "hostname": name, "volumes": _volumes(stateful_set, made["spec"], ordinal)}
    if spec.get("serviceName"):
        pod_spec["subdomain"] = spec["serviceName"]
    else:
        pod_spec.pop("subdomain", None)
    if not pod_spec["volumes"]:
        del pod_spec["volumes"]
    meta = {**made["metadata"], "name": name, "labels": labels}
    return cast("Pod", {**made, "metadata": meta, "spec": pod_spec})


def with_identity(stateful_set: Obj, pod: Pod) -> Pod:
    """Return the Pod with its identity and storage restored, or the Pod itself if nothing is missing."""
    meta, ordinal = pod["metadata"], ordinal_of(pod)
    if not identity_matches(stateful_set, pod):
        name = f"{stateful_set['metadata']['name']}-{ordinal}"
        meta = {**meta, "name": name, "labels": {**(meta.get("labels") or {}), **_identity(name, ordinal)}}
        pod = {**pod, "metadata": meta}
    if not storage_matches(stateful_set, pod):
        pod = {**pod, "spec": {**pod["spec"], "volumes": _volumes(stateful_set, pod["spec"], ordinal)}}
    return pod


def identity_matches(stateful_set: Obj, pod: Pod) -> bool:
    parent, ordinal = parent_and_ordinal(pod)
    name = pod["metadata"]["name"]
    return (
        ordinal >= 0
        and parent == stateful_set["metadata"]["name"]
        and name == f"{parent}-{ordinal}"
        and (pod["metadata"].get("labels") or {}).get(_NAME_LABEL) == name
    )


def storage_matches(stateful_set: Obj, pod: Pod) -> bool:
    ordinal = ordinal_of(pod)
    if ordinal < 0:
        return False
    volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or ()}
    return all(
        ((volumes.get(template["metadata"]["name"]) or {}).get("persistentVolumeClaim") or {}).get("claimName")
        == _claim_name(stateful_set, template, ordinal)
        for template in _claim_templates(stateful_set)
    )


def _identity(name: str, ordinal: int) -> dict[str, str]:
    return {_NAME_LABEL: name, _INDEX_LABEL: str(ordinal)}


def _volumes(stateful_set: Obj, pod_spec: PodSpec, ordinal: int) -> list[Volume]:
    """Return the volumes; those of the claims come first and replace others with the same name."""
    ours: list[Volume] = [
        {
            "name": template["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": _claim_name(stateful_set, template, ordinal)},
        }
        for template in _claim_templates(stateful_set)
    ]
    claim_names = {volume["name"] for volume in ours}
    return [*ours, *(volume for volume in pod_spec.get("volumes") or () if volume["name"] not in claim_names)]


# -- revisions --------------------------------------------------------------------------------------------------------


class Revisions(NamedTuple):
    current: Obj
    update: Obj
    collisions: int

    @property
    def names(self) -> tuple[str, str]:
        return self.current["metadata"]["name"], self.update["metadata"]["name"]


async def revisions_of(client: Client, history: History, stateful_set: Obj, known: Sequence[Obj]) -> Revisions:
    """Return the revisions; `known` is sorted. If the template changed, create a revision, or renumber an equal old
    one."""
    status = stateful_set.get("status") or {}
    collisions = int(status.get("collisionCount") or 0)
    following = number(known[-1]) + 1 if known else 1
    equal = [revision for revision in known if has_template_of(stateful_set, revision)]
    if equal and equal[-1] is known[-1]:
        update = known[-1]
    elif equal:
        update = await history.renumber(equal[-1], following)
    else:
        update, collisions = await _create(client, stateful_set, following, collisions)
    named = (revision for revision in known if revision["metadata"]["name"] == status.get("currentRevision"))
    return Revisions(next(named, update), update, collisions)


async def _create(client: Client, stateful_set: Obj, count: int, collisions: int) -> tuple[Obj, int]:
    meta, data = stateful_set["metadata"], data_of(stateful_set)
    labels = dict((stateful_set["spec"]["template"].get("metadata") or {}).get("labels") or {})
    labels[_HASH_LABEL] = revision_hash(data, collisions)
    while True:
        name = f"{meta['name'][:_LONGEST_PREFIX]}-{revision_hash(data, collisions)}"
        try:
            return await client.create(revision_of(stateful_set, name, labels, count)), collisions
        except AlreadyExists:
            # From an earlier reconcile that the cache does not show yet, or a hash collision.
            there = await client.get(REVISIONS, name, meta["namespace"])
            if has_template_of(stateful_set, there):
                return there, collisions
            collisions += 1


def beyond_limit(
    stateful_set: Obj, known: Iterable[Obj], revisions: Revisions | None, in_use: Iterable[str]
) -> list[Obj]:
    """Return the oldest unreferenced revisions beyond the history limit."""
    live = {*in_use, *(revisions.names if revisions is not None else ())}
    unused = [revision for revision in known if revision["metadata"]["name"] not in live]
    limit = int(stateful_set["spec"].get("revisionHistoryLimit", 10))
    return unused[: max(0, len(unused) - limit)] if limit >= 0 else []
