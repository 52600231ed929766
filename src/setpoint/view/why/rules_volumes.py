"""Why a claim is not bound, and which claims a Pod waits for."""

from __future__ import annotations

from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import Finding
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.rules_deletion import claims_of

_CLAIMS = "core/persistentvolumeclaims"


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
    """Return why claims of a Pod are not bound."""
    found, namespace = list[Finding](), pod["metadata"].get("namespace", "")
    for name in claims_of(pod):
        claim = await facts.get("", "persistentvolumeclaims", namespace, name)
        if claim is not None:
            ref = Ref("", "persistentvolumeclaims", "PersistentVolumeClaim", namespace, name)
            found += await unbound_claim(facts, f"{_CLAIMS}/{namespace}/{name}", ref, claim)
    return found


async def unbound_claim(facts: Facts, key: str, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return why a PersistentVolumeClaim is not bound; empty if it is."""
    if (obj.get("status") or {}).get("phase") == "Bound":
        return []
    spec, subject = obj.get("spec") or {}, f"{ref.kind} {ref.name}"
    name = spec.get("storageClassName") or ""
    storage = await facts.get("storage.k8s.io", "storageclasses", "", name) if name else None
    if name and storage is None and await facts.may_read(f"storage.k8s.io/storageclasses/{name}"):
        text = f"{subject} is not bound: its storage class {name} does not exist."
        return [Finding("no-class", text)]
    if storage is not None and storage.get("volumeBindingMode") == "WaitForFirstConsumer":
        pods = await facts.list("", "pods", ref.namespace)
        if not any(ref.name in claims_of(each) for each in pods):
            return [Finding("first-consumer", f"{subject} is bound when the first Pod uses it; none does.")]
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage", "")
    how = f"of class {name}" if name else "without a class"
    text = f"{subject} is not bound: no free volume {how} offers {wanted} with its access modes."
    if storage is not None and storage.get("provisioner"):
        text = f"{subject} is not bound: it waits for the provisioner {storage['provisioner']}."
    return [Finding("unbound", text)]
