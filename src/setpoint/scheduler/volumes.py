"""Claims and volumes as far as they affect scheduling. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.kinds.storage.binding import (
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    annotations_of,
    capacity,
    claim_class,
    has_access_modes,
    is_reserved_for,
    requested,
    same_attributes_class,
    same_volume_mode,
    volume_class,
)  # fmt: skip
from setpoint.meta.quantity import compare, value
from setpoint.meta.selectors import from_label_selector

Obj = dict[str, Any]

NO_PROVISIONER = "kubernetes.io/no-provisioner"


def pod_claims(pod: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the name of each claim that a Pod uses, and whether it is an ephemeral claim."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"].get("claimName") or "", False
        elif "ephemeral" in volume:
            yield f"{pod['metadata']['name']}-{volume['name']}", True


def uses_claim(pod: Mapping[str, Any], claim: Obj | None) -> bool:
    if claim is None or claim["metadata"]["namespace"] != pod["metadata"]["namespace"]:
        return False
    return any(name == claim["metadata"]["name"] for name, _ in pod_claims(pod))


def is_for_pod(claim: Obj, pod: Mapping[str, Any]) -> bool:
    uid = pod["metadata"]["uid"]
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def is_fully_bound(claim: Obj) -> bool:
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


def could_serve(volume: Obj, claim: Obj) -> bool:
    """Return whether the volume satisfies the claim, regardless of the node. A reserved one need only match in size and
    mode."""
    mine = is_reserved_for(volume, claim)
    if (volume["spec"].get("claimRef") and not mine) or "deletionTimestamp" in volume["metadata"]:
        return False
    if compare(capacity(volume), requested(claim)) < 0:
        return False
    if not same_volume_mode(volume, claim) or not same_attributes_class(volume, claim):
        return False
    selector = claim["spec"].get("selector")
    return mine or (
        (volume.get("status") or {}).get("phase") == "Available"
        and (selector is None or from_label_selector(selector).matches(volume["metadata"].get("labels") or {}))
        and volume_class(volume) == claim_class(claim)
        and has_access_modes(volume, claim)
    )


def bound_for(volume: Obj, claim: Obj) -> Obj | None:
    """Return the volume with a reference to the claim, or None if it is complete already."""
    if (volume["spec"].get("claimRef") or {}).get("uid") == claim["metadata"]["uid"] and is_reserved_for(volume, claim):
        return None
    meta = claim["metadata"]
    reference = {
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta["namespace"], "name": meta["name"],
        "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
    }  # fmt: skip
    noted = dict(annotations_of(volume))
    if not is_reserved_for(volume, claim):
        noted[BOUND_BY_CONTROLLER] = "yes"
    metadata = {**volume["metadata"], **({"annotations": noted} if noted else {})}
    return {**volume, "metadata": metadata, "spec": {**volume["spec"], "claimRef": reference}}


def with_selected_node(claim: Obj, node: str) -> Obj:
    return {**claim, "metadata": {**claim["metadata"], "annotations": {**annotations_of(claim), SELECTED_NODE: node}}}


def volume_limit(stored: Obj) -> int | None:
    """Return the largest volume that a CSIStorageCapacity permits, or None."""
    limit = stored.get("maximumVolumeSize") or stored.get("capacity")
    return None if limit is None else value(limit)
