"""Matching of volumes and claims, shared by the binder, the scheduler and provisioners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import compare
from setpoint.meta.selectors import from_label_selector

STORAGE_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes_text(modes: Iterable[str] | None) -> str:
    present = frozenset(modes or ())
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in present)


BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""Annotation of a claim that was bound once: from then on a missing volume means lost data."""
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a claim or volume whose counterpart was chosen by a controller, not by its author."""
SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""Annotation of a claim with the node that the scheduler selected: a volume can be provisioned for it now."""
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
"""Annotation of a claim with the provisioner that must create its volume."""
BETA_STORAGE_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


def annotations_of(obj: ObjView) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def claim_class(claim: ObjView) -> str:
    """Return the name of the storage class that the claim requests; empty means none."""
    return str(annotations_of(claim).get(STORAGE_CLASS_ANNOTATION, claim["spec"].get("storageClassName") or ""))


def requests_class(claim: ObjView) -> bool:
    """Return whether the claim names a class, even the empty one, which requests a volume without a class."""
    return STORAGE_CLASS_ANNOTATION in annotations_of(claim) or claim["spec"].get("storageClassName") is not None


def volume_class(volume: ObjView) -> str:
    return str(annotations_of(volume).get(STORAGE_CLASS_ANNOTATION, volume["spec"].get("storageClassName") or ""))


def waits_for_consumer(storage_class: ObjView | None) -> bool:
    return storage_class is not None and storage_class.get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER


def requested(claim: ObjView) -> str:
    return str(((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "0"))


def capacity(volume: ObjView) -> str:
    return str((volume["spec"].get("capacity") or {}).get("storage", "0"))


def claim_reference(claim: ObjView) -> Obj:
    """Return the claimRef of a volume that is bound to the claim."""
    meta = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "resourceVersion": meta["resourceVersion"],
        "uid": meta["uid"],
    }


def is_reserved_for(volume: ObjView, claim: ObjView) -> bool:
    """Return whether the volume references the claim, and not another one of the same name."""
    reference, meta = volume["spec"].get("claimRef"), claim["metadata"]
    if not reference or reference.get("name") != meta["name"] or reference.get("namespace") != meta["namespace"]:
        return False
    return not reference.get("uid") or reference["uid"] == meta["uid"]


def has_access_modes(volume: ObjView, claim: ObjView) -> bool:
    return set(claim["spec"].get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ())


def same_volume_mode(volume: ObjView, claim: ObjView) -> bool:
    return bool(volume["spec"].get("volumeMode", "Filesystem") == claim["spec"].get("volumeMode", "Filesystem"))


def same_attributes_class(volume: ObjView, claim: ObjView) -> bool:
    name = "volumeAttributesClassName"
    return (volume["spec"].get(name) or "") == (claim["spec"].get(name) or "")


def mismatch_reason(volume: ObjView, claim: ObjView) -> str:
    """Return why a volume that the claim names cannot be bound to it; empty if it can."""
    if "deletionTimestamp" in volume["metadata"]:
        return f'the volume is marked for deletion "{volume["metadata"]["name"]}"'
    if compare(capacity(volume), requested(claim)) < 0:
        return "requested PV is too small"
    if volume_class(volume) != claim_class(claim):
        return "storageClassName does not match"
    if not same_attributes_class(volume, claim):
        return "volumeAttributesClassName does not match"
    if not same_volume_mode(volume, claim):
        return "incompatible volumeMode"
    if not has_access_modes(volume, claim):
        return "incompatible accessMode"
    return ""


def smallest_match(
    claim: Obj,
    volumes: Iterable[Obj],
    *,
    only_reserved: bool = False,
    reaches: Callable[[Obj], bool] | None = None,
    excluded: Collection[str] = (),
) -> Obj | None:
    """Return the volume that is reserved for the claim, or else the smallest free one that matches.

    `only_reserved` is for callers that do not choose free volumes. `reaches(volume)` says whether it is usable where it
    is needed: if the reserved one is not, the result is None. Names in `excluded` are already assigned.
    """
    label_selector = claim["spec"].get("selector")
    selector = from_label_selector(label_selector) if label_selector is not None else None
    wanted_class, size = claim_class(claim), requested(claim)
    smallest: Obj | None = None
    for volume in volumes:
        meta, spec = volume["metadata"], volume["spec"]
        reserved = is_reserved_for(volume, claim)
        if meta["name"] in excluded or (spec.get("claimRef") and not reserved) or "deletionTimestamp" in meta:
            continue
        if (
            compare(capacity(volume), size) < 0
            or not same_volume_mode(volume, claim)
            or not same_attributes_class(volume, claim)
        ):
            continue
        if reserved:
            return volume if reaches is None or reaches(volume) else None
        if only_reserved or (volume.get("status") or {}).get("phase") != "Available":
            continue
        if selector is not None and not selector.matches(meta.get("labels") or {}):
            continue
        if volume_class(volume) != wanted_class or not has_access_modes(volume, claim):
            continue
        if smallest is not None and compare(capacity(volume), capacity(smallest)) >= 0:
            continue
        if reaches is None or reaches(volume):
            smallest = volume
    return smallest
