"""Claims and volumes, as far as they bear on where a Pod can go. Pure functions over plain objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.meta.quantity import compare, value
from setpoint.meta.selectors import from_label_selector
from setpoint.scheduler.listers import Lister

Obj = dict[str, Any]

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def pod_claims(pod: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Name of each claim that a Pod uses, and whether it was made for the Pod alone."""
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


def annotations_of(obj: Obj) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def class_of(obj: Obj) -> str:
    """Of a claim or a volume; empty: none."""
    beta = annotations_of(obj).get(_CLASS_ANNOTATION)
    return beta if beta is not None else str((obj.get("spec") or {}).get("storageClassName") or "")


def is_fully_bound(claim: Obj) -> bool:
    return bool((claim.get("spec") or {}).get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


def waits_for_consumer(claim: Obj, classes: Lister) -> bool:
    """A node must be chosen before the claim gets its volume."""
    found = classes.get(class_of(claim))
    return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"


def requested(claim: Obj) -> str:
    resources = (claim.get("spec") or {}).get("resources") or {}
    return str((resources.get("requests") or {}).get("storage") or "0")


def capacity(volume: Obj) -> str:
    return str(((volume.get("spec") or {}).get("capacity") or {}).get("storage") or "0")


def is_bound_to(volume: Obj, claim: Obj) -> bool:
    """Set aside for the claim, by a user or by a controller."""
    reference = (volume.get("spec") or {}).get("claimRef")
    meta = claim["metadata"]
    if not reference:
        return False
    return (reference.get("name"), reference.get("namespace")) == (meta["name"], meta["namespace"]) and reference.get(
        "uid"
    ) in (None, "", meta["uid"])


def could_serve(volume: Obj, claim: Obj) -> bool:
    """Whether the volume would do for the claim, wherever the Pod is. One that is set aside for it need only be big
    enough and of the right kind."""
    spec, wanted = volume.get("spec") or {}, claim.get("spec") or {}
    mine = is_bound_to(volume, claim)
    if spec.get("claimRef") and not mine:
        return False
    if compare(capacity(volume), requested(claim)) < 0 or "deletionTimestamp" in volume["metadata"]:
        return False
    if (wanted.get("volumeMode") or "Filesystem") != (spec.get("volumeMode") or "Filesystem"):
        return False
    if (wanted.get("volumeAttributesClassName") or "") != (spec.get("volumeAttributesClassName") or ""):
        return False
    if mine:
        return True
    selector = wanted.get("selector")
    return (
        (volume.get("status") or {}).get("phase") == "Available"
        and (selector is None or from_label_selector(selector).matches(volume["metadata"].get("labels") or {}))
        and class_of(volume) == class_of(claim)
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
    )


def bound_for(volume: Obj, claim: Obj) -> Obj | None:
    """The volume as it is to be written so that it is the claim's; None if it is already."""
    if (volume["spec"].get("claimRef") or {}).get("uid") == claim["metadata"]["uid"] and is_bound_to(volume, claim):
        return None
    meta = claim["metadata"]
    reference = {
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": meta["namespace"], "name": meta["name"],
        "uid": meta["uid"], "resourceVersion": meta["resourceVersion"],
    }  # fmt: skip
    noted = dict(annotations_of(volume))
    if not is_bound_to(volume, claim):
        noted[BOUND_BY_CONTROLLER] = "yes"
    metadata = {**volume["metadata"], **({"annotations": noted} if noted else {})}
    return {**volume, "metadata": metadata, "spec": {**volume["spec"], "claimRef": reference}}


def with_selected_node(claim: Obj, node: str) -> Obj:
    return {**claim, "metadata": {**claim["metadata"], "annotations": {**annotations_of(claim), SELECTED_NODE: node}}}


def volume_limit(stored: Obj) -> int | None:
    """The greatest volume that a CSIStorageCapacity says can be made."""
    limit = stored.get("maximumVolumeSize") or stored.get("capacity")
    return None if limit is None else value(limit)
