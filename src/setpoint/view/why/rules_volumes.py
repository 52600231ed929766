"""Why a claim is not bound, and which claims a Pod waits for."""

from __future__ import annotations

from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import Finding
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.rules_deletion import claims_of

_CLAIMS = "core/persistentvolumeclaims"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The annotation of a claim by which the scheduler lets its volume be provisioned."""
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_MAX_PODS = 3


async def missing_claims(facts: Facts, pod: ObjView) -> list[Finding]:
    """Return which claims of a Pod do not exist."""
    found = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if not name:
            continue
        namespace = pod["metadata"].get("namespace", "")
        claim = await facts.get("", "persistentvolumeclaims", namespace, name)
        if claim is None and await facts.may_read(f"{_CLAIMS}/{namespace}/{name}"):
            found.append(Finding("no-claim", f"Volume {volume['name']} needs pvc/{name}, which does not exist."))
    return found


async def unbound_claims(facts: Facts, pod: ObjView) -> list[Finding]:
    """Return why claims of a Pod are not bound, except those that wait until it is scheduled."""
    found, namespace = list[Finding](), pod["metadata"].get("namespace", "")
    for name in claims_of(pod):
        claim = await facts.get("", "persistentvolumeclaims", namespace, name)
        if claim is not None:
            ref = Ref("", "persistentvolumeclaims", "PersistentVolumeClaim", namespace, name)
            found += await unbound_claim(facts, f"{_CLAIMS}/{namespace}/{name}", ref, claim)
    return [each for each in found if each.rule != "first-consumer"]


async def unbound_claim(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return why a PersistentVolumeClaim is not bound; empty if it is."""
    spec, subject = obj.get("spec") or {}, f"{ref.kind} {ref.name}"
    phase, volume = (obj.get("status") or {}).get("phase"), spec.get("volumeName") or ""
    if phase == "Bound":
        return []
    if phase == "Lost":
        text = f"{subject} is lost: the volume {volume} that it was bound to is not its own any more."
        return [Finding("lost", text)]
    if volume:
        return [await _named_volume(facts, subject, volume)]
    name = spec.get("storageClassName") or ""
    if not name:
        return [_no_volume(subject, "without a class", spec)]
    storage = await facts.get("storage.k8s.io", "storageclasses", "", name)
    if storage is None:
        if not await facts.may_read(f"storage.k8s.io/storageclasses/{name}"):
            return [Finding("unbound", f"{subject} is not bound. You may not read its storage class {name}.")]
        return [Finding("no-class", f"{subject} is not bound: its storage class {name} does not exist.")]
    annotations = obj["metadata"].get("annotations") or {}
    if storage.get("volumeBindingMode") == "WaitForFirstConsumer" and not annotations.get(_SELECTED_NODE):
        return [await _without_node(facts, subject, ref)]
    if (provisioner := storage.get("provisioner")) != _NO_PROVISIONER:
        return [Finding("unbound", f"{subject} is not bound: it waits for the provisioner {provisioner}.")]
    return [_no_volume(subject, f"of class {name}", spec)]


def _no_volume(subject: str, which: str, spec: ObjView) -> Finding:
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "")
    return Finding("unbound", f"{subject} is not bound: no free volume {which} offers {wanted} with its access modes.")


async def _named_volume(facts: Facts, subject: str, name: str) -> Finding:
    """Return why a claim is not bound to the volume that it names."""
    text = f"{subject} is not bound: it names the volume {name}"
    volume = await facts.get("", "persistentvolumes", "", name)
    if volume is None:
        known = await facts.may_read(f"core/persistentvolumes/{name}")
        return Finding("unbound", f"{text}, which does not exist." if known else f"{text}, which you may not read.")
    if claim := (volume.get("spec") or {}).get("claimRef"):
        return Finding("unbound", f"{text}, which is reserved for {claim.get('namespace')}/{claim.get('name')}.")
    return Finding("unbound", f"{text}, whose phase is {(volume.get('status') or {}).get('phase', 'unknown')}.")


async def _without_node(facts: Facts, subject: str, ref: Ref) -> Finding:
    """Return which Pods must be scheduled before a claim is bound."""
    if not await facts.may_read(f"core/pods/{ref.namespace}/"):
        return Finding("first-consumer", f"{subject} is bound when a Pod that uses it is scheduled.")
    pods = [each for each in await facts.list("", "pods", ref.namespace) if ref.name in claims_of(each)]
    if not pods:
        return Finding("first-consumer", f"{subject} is bound when the first Pod uses it; none does.")
    names = [f"pod/{each['metadata']['name']}" for each in pods]
    more = f" and {len(names) - _MAX_PODS} more" if len(names) > _MAX_PODS else ""
    text = f"{subject} is bound when a Pod that uses it is scheduled: {', '.join(names[:_MAX_PODS])}{more}."
    return Finding("first-consumer", text)
