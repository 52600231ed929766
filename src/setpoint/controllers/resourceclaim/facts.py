"""Relations between Pods and ResourceClaims. Pure functions."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"
_LONGEST_BASE = 57
"""The maximum length of a name before the five-character suffix is added."""
_MOST_CONSUMERS = 256


class NotMade(LookupError):
    """The claim has not been created from its template yet."""


def claim_name(pod: Obj, entry: Obj) -> str | None:
    """Return the name of the claim for an entry of `spec.resourceClaims`, or None if no claim is needed. Raise
    NotMade."""
    if entry.get("resourceClaimName"):
        return str(entry["resourceClaimName"])
    for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ():
        if status.get("name") == entry["name"]:
            return status.get("resourceClaimName") or None
    raise NotMade("ResourceClaim not created yet")


def is_made_for(pod: Obj, claim: Obj) -> bool:
    return bool(owning_pod(claim)[1] == pod["metadata"]["uid"])


def owning_pod(claim: Obj) -> tuple[str, str]:
    """Return name and uid of the Pod for which the claim was created; empty if there is none."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner.get("apiVersion") == "v1" and owner.get("kind") == "Pod":
            return owner["name"], owner["uid"]
    return "", ""


def is_done(pod: Obj) -> bool:
    """Return whether no container runs or will ever run."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    return "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName")


def consumers(claim: Obj) -> list[Obj]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def must_be_reserved(pod: Obj, claim: Obj) -> bool:
    """Return whether the claim is allocated and the Pod is bound to a node without a reservation."""
    reserved = consumers(claim)
    return (
        bool((claim.get("status") or {}).get("allocation"))
        and all(each.get("uid") != pod["metadata"]["uid"] for each in reserved)
        and len(reserved) < _MOST_CONSUMERS
    )


def claim_from(template: Obj, pod: Obj, entry: Obj) -> Obj:
    meta, spec = pod["metadata"], template["spec"]
    given = spec.get("metadata") or {}
    base = f"{meta['name']}-{entry['name']}-"
    if len(base) > _LONGEST_BASE:
        # Truncate both names in proportion, so that a part of each remains.
        pod_part = meta["name"][: len(meta["name"]) * _LONGEST_BASE // len(base)]
        base = f"{pod_part}-{entry['name'][: len(entry['name']) * _LONGEST_BASE // len(base)]}"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": base,
            "namespace": meta["namespace"],
            "ownerReferences": [owner],
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM: entry["name"]},
            **({"labels": given["labels"]} if given.get("labels") else {}),
        },
        "spec": spec.get("spec") or {},
    }
