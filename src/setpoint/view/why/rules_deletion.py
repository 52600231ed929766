"""Why an object that is being deleted still exists."""

from __future__ import annotations

import re
from collections.abc import Sequence

from setpoint.meta.conditions import conditions_of
from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import Finding
from setpoint.view.why.facts import Facts, Ref
from setpoint.view.why.finalizers import BUILTIN_REMOVERS, owner_of
from setpoint.view.why.moments import age, milliseconds

_MAX_SHOWN = 4
_MAX_REMAINING = 8
_REMAINING = re.compile(r"(?P<plural>[a-z0-9-]{1,63})\.(?P<group>[a-z0-9.-]{0,253}) has (?P<count>\d{1,9}) resource")
"""A resource in the message of the namespace controller: `configmaps. has 1 resource instances`."""
_DEPENDENTS = {
    "Deployment": ("apps", "replicasets", "replicaset"),
    "CronJob": ("batch", "jobs", "job"),
    **dict.fromkeys(("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"), ("", "pods", "pod")),
}
"""Group, plural and short kind of the objects that those of a built-in kind control, by kind."""
_CONTENT = ("NamespaceContentRemaining", "NamespaceFinalizersRemaining")
_CLAIM_PROTECTION = "kubernetes.io/pvc-protection"


async def leaving(facts: Facts, ref: Ref, obj: ObjView) -> list[Finding]:
    """Return what the deletion of an object other than a Pod waits for."""
    meta = obj["metadata"]
    since = age(facts, milliseconds(meta["deletionTimestamp"]))
    name = f"{ref.kind} {ref.name}"
    if ref.kind == "Namespace":
        found = await _content(facts, ref.name, obj)
        return found or [Finding("terminating", f"{name} has been in deletion for {since}.")]
    finalizers = meta.get("finalizers") or []
    if "foregroundDeletion" in finalizers:
        text = f"{name} waits until its dependents are deleted (foreground deletion), for {since}."
        return [Finding("dependents", text, await _dependents(facts, ref, obj))]
    if not finalizers:
        return [Finding("terminating", f"{name} has been in deletion for {since}.")]
    found = []
    for each in finalizers:
        owner = await owner_of(facts, ref, each)
        text = f"{name} has been in deletion for {since} and waits for the finalizer {each}{owner.clause}."
        users = await _users(facts, ref.namespace, ref.name, each)
        advice = [] if each in BUILTIN_REMOVERS else [f"the owner of the finalizer must remove {each}"]
        found.append(
            Finding(
                "finalizers", text, [*users, *owner.evidence], help=["delete the Pods that use it"] if users else advice
            )
        )
    return found


async def _dependents(facts: Facts, ref: Ref, obj: ObjView) -> list[str]:
    """Return what is left of the objects that the object controls, as far as its kind is known."""
    group, plural, kind = _DEPENDENTS.get(ref.kind, ("", "", ""))
    if not plural:
        return []
    left = []
    for each in await facts.list(group, plural, ref.namespace, obj["metadata"].get("uid", "")):
        finalizers = [one for one in each["metadata"].get("finalizers") or () if one != "foregroundDeletion"]
        why = f" waits for the {'finalizer' if len(finalizers) == 1 else 'finalizers'} {', '.join(finalizers)}"
        left.append(f"{kind}/{each['metadata']['name']}{why if finalizers else ' is left'}")
    more = [f"and {len(left) - _MAX_SHOWN} more"] if len(left) > _MAX_SHOWN else []
    return [*left[:_MAX_SHOWN], *more]


async def _users(facts: Facts, namespace: str, name: str, finalizer: str) -> list[str]:
    """Return the Pods that hold a claim which is protected while it is used."""
    if finalizer != _CLAIM_PROTECTION:
        return []
    pods = await facts.list("", "pods", namespace)
    return [f"pod/{each['metadata']['name']} uses it" for each in pods if name in claims_of(each)][:_MAX_SHOWN]


def claims_of(pod: ObjView) -> list[str]:
    """Return the names of the claims that a Pod uses."""
    found = []
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            found.append(str(claim.get("claimName")))
        elif volume.get("ephemeral"):
            found.append(f"{pod['metadata']['name']}-{volume['name']}")
    return found


async def _content(facts: Facts, namespace: str, obj: ObjView) -> list[Finding]:
    """Return what is left in a namespace that is being deleted, and what prevents the controller from deleting it."""
    conditions = {each["type"]: str(each.get("message", "")) for each in conditions_of(obj) if each["status"] == "True"}
    evidence, total, waiting = list[str](), 0, False
    for match in _REMAINING.finditer(conditions.get("NamespaceContentRemaining", "")):
        plural, group = match["plural"], match["group"]
        objects = await facts.list(group, plural, namespace)
        total += len(objects) or int(match["count"])
        if not objects:
            evidence.append(f"{match['count']} of {f'{plural}.{group}' if group else plural}")
        for each in objects[: _MAX_REMAINING + 1]:
            waiting = waiting or bool(each["metadata"].get("finalizers"))
            kind = facts.ref(f"{group or 'core'}/{plural}/").kind.lower()
            evidence.append(await _left(facts, namespace, kind, each))
    found = []
    if evidence:
        left = "1 object is left" if total == 1 else f"{total} objects are left"
        more = [f"and {total - _MAX_REMAINING} more"] if len(evidence) > _MAX_REMAINING else []
        help_text = ["the owners of the finalizers must remove them"] if waiting else []
        text = f"Namespace {namespace} is being deleted, and {left} in it."
        found.append(Finding("namespace-content", text, [*evidence[:_MAX_REMAINING], *more], help=help_text))
    for kind, message in conditions.items():
        if kind != "NamespaceDeletionContentSuccess" and not (evidence and kind in _CONTENT):
            text = f"Namespace {namespace} is being deleted: {message.rstrip('.')}."
            found.append(Finding("namespace-content", text))
    return found


async def _left(facts: Facts, namespace: str, kind: str, obj: ObjView) -> str:
    name = obj["metadata"]["name"]
    finalizers: Sequence[str] = obj["metadata"].get("finalizers") or ()
    if not finalizers:
        return f"{kind}/{name}"
    reasons = [(await _users(facts, namespace, name, each) or [""])[0] for each in finalizers]
    shown = [f"{each} ({why})" if why else each for each, why in zip(finalizers, reasons, strict=True)]
    return f"{kind}/{name} waits for the {'finalizer' if len(shown) == 1 else 'finalizers'} {', '.join(shown)}"
