"""The PersistentVolumeClaims of a StatefulSet's Pods and their owners.

A claim outlives its Pod and its set unless the retention policy says otherwise. In that case it gets an owner reference
and the garbage collector deletes it: to the set if it is deleted with the set, to the Pod once that Pod is beyond the
size of the set.
"""

from __future__ import annotations

from typing import Any

from setpoint.controllers.ownership import controller_reference

Obj = dict[str, Any]

_RETAIN, _DELETE = "Retain", "Delete"


def claim_templates(stateful_set: Obj) -> list[Obj]:
    return stateful_set["spec"].get("volumeClaimTemplates") or []


def claim_name(stateful_set: Obj, template: Obj, ordinal: int) -> str:
    return f"{template['metadata']['name']}-{stateful_set['metadata']['name']}-{ordinal}"


def claims_for(stateful_set: Obj, ordinal: int) -> list[Obj]:
    matched = stateful_set["spec"]["selector"].get("matchLabels") or {}
    namespace = stateful_set["metadata"]["namespace"]
    made = []
    for template in claim_templates(stateful_set):
        meta = {
            **template["metadata"],
            "name": claim_name(stateful_set, template, ordinal),
            "namespace": namespace,
            "labels": {**(template["metadata"].get("labels") or {}), **matched},
        }
        made.append({**template, "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta})
    return made


def retention(stateful_set: Obj) -> tuple[str, str]:
    """Return the retention policies (when deleted, when scaled)."""
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted", _RETAIN), policy.get("whenScaled", _RETAIN)


def belongs_to_predecessor(claim: Obj, obj: Obj) -> bool:
    """Return whether the claim belongs to an earlier object with this name and will be garbage-collected."""
    for reference in _references(claim):
        if _names(reference, obj):
            return bool(reference["uid"] != obj["metadata"].get("uid"))
    return False


def has_conflicting_controller(claim: Obj, stateful_set: Obj, pod: Obj) -> bool:
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


def owners_up_to_date(claim: Obj, stateful_set: Obj, pod: Obj, *, beyond: bool) -> bool:
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


def with_owners(claim: Obj, stateful_set: Obj, pod: Obj, *, beyond: bool) -> Obj:
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


def _references(claim: Obj) -> list[Obj]:
    return claim["metadata"].get("ownerReferences") or []


def _is_owner(claim: Obj, owner: Obj) -> bool:
    uid = owner["metadata"].get("uid")
    return any(reference["uid"] == uid for reference in _references(claim))


def _names(reference: Obj, obj: Obj) -> bool:
    return bool(
        (reference["apiVersion"], reference["kind"], reference["name"])
        == (obj["apiVersion"], obj["kind"], obj["metadata"]["name"])
    )
