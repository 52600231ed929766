"""Which Pods use which volume claims, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from setpoint.controllers.pods import phase
from setpoint.reconcile import Informer
from setpoint.reconcile.keys import controller_of

Obj = dict[str, Any]

PODS_BY_CLAIM = "claim"
"""The name of the index of Pods by the keys of the claims that they name."""


def index_pods_by_claim(pods: Informer) -> None:
    pods.add_index(PODS_BY_CLAIM, lambda pod: [f"{pod['metadata']['namespace']}/{name}" for name in claims_of(pod)])


def claims_of(pod: Mapping[str, Any]) -> Iterator[str]:
    """The names of all claims that its volumes are from."""
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            yield volume["persistentVolumeClaim"]["claimName"]
        elif "ephemeral" in volume:
            yield ephemeral_claim_name(pod, volume)


def ephemeral_claim_name(pod: Mapping[str, Any], volume: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['name']}-{volume['name']}"


def is_made_for(pod: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    """The claim is the one of an ephemeral volume of this very Pod, and not one that happens to have the name."""
    owner = controller_of(claim)
    return owner is not None and owner["uid"] == pod["metadata"]["uid"]


def uses(pod: Mapping[str, Any], claim: Mapping[str, Any], *, ephemeral: bool = True) -> bool:
    """`ephemeral`: a claim that was made for the Pod counts too."""
    name = claim["metadata"]["name"]
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            if volume["persistentVolumeClaim"]["claimName"] == name:
                return True
        elif ephemeral and "ephemeral" in volume and ephemeral_claim_name(pod, volume) == name:
            if is_made_for(pod, claim):
                return True
    return False


def has_let_go(pod: Mapping[str, Any]) -> bool:
    """It is over, or on its way out with nothing of it running any more."""
    if phase(pod) in ("Succeeded", "Failed"):
        return True
    status = pod.get("status") or {}
    return "deletionTimestamp" in pod["metadata"] and not any(
        "running" in (found.get("state") or {}) or not found.get("state")
        for part in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for found in status.get(part) or ()
    )
