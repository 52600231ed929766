"""Finds the persistent volume of a claim, with the kubelet's checks and messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from setpoint.meta.node_fit import node_selector
from setpoint.meta.objects import ObjView
from setpoint.node.host.volumes.interface import ProcessingError, SetUpError

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

_PROTECTION = "kubernetes.io/pvc-protection"


class ClaimLister(Protocol):
    """Read access to claims and persistent volumes."""

    def claim(self, namespace: str, name: str) -> ObjView | None:
        """Return a PersistentVolumeClaim."""
        ...

    def volume(self, name: str) -> ObjView | None:
        """Return a PersistentVolume."""
        ...


class BoundVolume(NamedTuple):
    """The persistent volume of a claim, as a Pod uses it."""

    volume: ObjView
    read_only: bool


def claim_name(pod: Pod, volume: ObjView) -> str:
    """Return the name of the claim that a volume refers to; empty if it refers to none. The claim of an ephemeral
    volume is named after Pod and volume."""
    if volume.get("ephemeral") is not None:
        return f"{pod['metadata']['name']}-{volume['name']}"
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))


def bound_volume(pod: Pod, volume: ObjView, lister: ClaimLister) -> BoundVolume:
    """Return the persistent volume that the claim of a Pod's volume is bound to. Raise ProcessingError if the claim
    cannot be used."""
    meta, name = pod["metadata"], claim_name(pod, volume)
    try:
        claim = _usable_claim(meta["namespace"], name, lister)
        if volume.get("ephemeral") is not None:
            _check_owner(pod, claim)
        persistent = _volume_of(claim, lister)
    except _ClaimProblem as problem:
        raise ProcessingError(f"error processing PVC {meta['namespace']}/{name}: {problem}") from None
    _check_mode(pod, volume["name"], persistent["spec"].get("volumeMode") or "Filesystem")
    return BoundVolume(persistent, bool((volume.get("persistentVolumeClaim") or {}).get("readOnly")))


def check_node_affinity(volume: ObjView, node: str, labels: Mapping[str, str]) -> None:
    """Raise SetUpError if a persistent volume cannot be used on this node."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    if required is not None and not node_selector(required)({"metadata": {"name": node, "labels": labels}}):
        raise SetUpError("no matching NodeSelectorTerms", "NodeAffinity check failed", volume["metadata"]["name"])


class _ClaimProblem(Exception):
    pass


def _usable_claim(namespace: str, name: str, lister: ClaimLister) -> ObjView:
    claim = lister.claim(namespace, name)
    if claim is None:
        problem = f'persistentvolumeclaims "{name}" not found'
        raise _ClaimProblem(f"failed to fetch PVC from API server: {problem}")
    meta = claim["metadata"]
    if meta.get("deletionTimestamp") and _PROTECTION not in (meta.get("finalizers") or ()):
        raise _ClaimProblem("PVC is being deleted")
    if (claim.get("status") or {}).get("phase") != "Bound":
        raise _ClaimProblem("PVC is not bound")
    if not claim["spec"].get("volumeName"):
        raise _ClaimProblem("PVC has empty pvc.Spec.VolumeName")
    return claim


def _volume_of(claim: ObjView, lister: ClaimLister) -> ObjView:
    name, uid = claim["spec"]["volumeName"], claim["metadata"]["uid"]
    volume = lister.volume(name)
    if volume is None:
        raise _ClaimProblem(f'failed to fetch PV {name} from API server: persistentvolumes "{name}" not found')
    reference = volume["spec"].get("claimRef")
    if reference is None:
        about = "indicating it is not yet bound to the claim"
        raise _ClaimProblem(f"found PV object {name} but it has a nil pv.Spec.ClaimRef {about}")
    if reference.get("uid", "") != uid:
        about = f"pv.Spec.ClaimRef.UID {reference.get('uid', '')} does not point to claim.UID {uid}"
        raise _ClaimProblem(f"found PV object {name} but its {about}")
    return volume


def _check_owner(pod: Pod, claim: ObjView) -> None:
    pod_meta, meta = pod["metadata"], claim["metadata"]
    owners = meta.get("ownerReferences") or ()
    if not any(each.get("controller") and each.get("uid") == pod_meta["uid"] for each in owners):
        about = f"was not created for pod {pod_meta['namespace']}/{pod_meta['name']} (pod is not owner)"
        raise ProcessingError(f"PVC {meta['namespace']}/{meta['name']} {about}")


def _check_mode(pod: Pod, name: str, mode: str) -> None:
    for field, wanted in (("volumeMounts", "Filesystem"), ("volumeDevices", "Block")):
        if mode != wanted and uses(pod, name, field):
            raise ProcessingError(f"volume {name} has volumeMode {mode}, but is specified in {field}")


def uses(pod: Pod, name: str, field: str) -> bool:
    """Return whether a container has the volume among its `volumeMounts` or `volumeDevices`."""
    spec: ObjView = pod["spec"]
    return any(
        each.get("name") == name
        for containers in ("initContainers", "containers", "ephemeralContainers")
        for container in spec.get(containers) or ()
        for each in container.get(field) or ()
    )
