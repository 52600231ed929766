"""Determines which Pods use which PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.controllers.pods import phase
from setpoint.reconcile import Informer
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

PODS_BY_CLAIM = "claim"
"""The name of the index of Pods by the keys of their claims."""


def index_pods_by_claim(pods: Informer) -> None:
    pods.add_index(PODS_BY_CLAIM, lambda pod: [f"{pod['metadata']['namespace']}/{name}" for name in claims_of(pod)])


def claims_of(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of all claims that the Pod's volumes refer to."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield ephemeral_claim_name(pod, volume)


def ephemeral_claim_name(pod: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['name']}-{volume['name']}"


def is_made_for(pod: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    """Return whether the claim belongs to an ephemeral volume of this Pod, and does not merely have its name."""
    owner = controller_of(claim)
    return owner is not None and owner["uid"] == pod["metadata"]["uid"]


def uses(pod: Mapping[str, Any], claim: Mapping[str, Any], *, ephemeral: bool = True) -> bool:
    """Return whether the Pod uses the claim. With `ephemeral`, claims of its ephemeral volumes count too."""
    name = claim["metadata"]["name"]
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            if volume["persistentVolumeClaim"]["claimName"] == name:
                return True
        elif ephemeral and "ephemeral" in volume and ephemeral_claim_name(pod, volume) == name:
            if is_made_for(pod, claim):
                return True
    return False


def has_released_volumes(pod: Mapping[str, Any]) -> bool:
    """Return whether the Pod is finished, or is being deleted and has no running containers."""
    if phase(pod) in ("Succeeded", "Failed"):
        return True
    status = pod.get("status") or {}
    return "deletionTimestamp" in pod["metadata"] and not any(
        "running" in (found.get("state") or {}) or not found.get("state")
        for part in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for found in status.get(part) or ()
    )
