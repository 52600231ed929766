"""Conditions of a Pod, its binding to a node, and its eviction: validation, and the effect on the Pod."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from setpoint.kinds.core.podspec.ratcheting import drop_init_container_annotations
from setpoint.meta.conditions import with_condition
from setpoint.meta.errors import PlainServerError
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_subdomain
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time

SCHEDULING_GATED = "SchedulingGated"


def with_pod_condition(
    status: ObjView, kind: str, value: str, now: datetime, *, reason: str = "", message: str = ""
) -> Obj:
    """Return the status with this condition set; the time of an earlier one stays if its value does not change."""
    new: Obj = {"type": kind, "status": value, "lastProbeTime": None, "lastTransitionTime": format_time(now)}
    if reason:
        new["reason"] = reason
    if message:
        new["message"] = message
    return {**status, "conditions": with_condition(status.get("conditions", ()), new)}


_TERMINAL = ("Succeeded", "Failed")


def validate_binding(binding: ObjView, errs: Errors) -> None:
    target = binding.get("target") or {}
    kind, name = target.get("kind", ""), target.get("name", "")
    if kind and kind != "Node":
        errs.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not name:
        errs.append(required("target.name", ""))
    elif kind in ("", "Node"):
        for text in dns1123_subdomain(name):
            errs.append(invalid("target.name", name, text))


def binding_refusal(pod: ObjView) -> str:
    """Return why this pod cannot be bound (a conflict on `pods/binding`); empty: it can."""
    name, spec = pod["metadata"].get("name", ""), pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f"pod {name} is already assigned to node {quote(spec['nodeName'])}"
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def bound(pod: ObjView, binding: ObjView, now: datetime) -> Obj:
    """Return the bound pod: a new object that shares unchanged parts with `pod`. Its generation does not change."""
    meta = dict(pod["metadata"])
    for name in ("annotations", "labels"):
        added = (binding.get("metadata") or {}).get(name)
        if added:
            meta[name] = {**(meta.get(name) or {}), **added}
    if meta.get("annotations"):
        meta["annotations"] = dict(meta["annotations"])
        drop_init_container_annotations(meta["annotations"])
    status = {key: value for key, value in (pod.get("status") or {}).items() if key != "nominatedNodeName"}
    status = with_pod_condition(status, "PodScheduled", "True", now)
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": binding["target"]["name"]}, "status": status}


def evicted(pod: ObjView, now: datetime) -> Obj:
    """Return the pod with the mark that it is about to be deleted by an eviction."""
    status = with_pod_condition(
        pod.get("status") or {},
        "DisruptionTarget",
        "True",
        now,
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
    )
    return {**pod, "status": status}


def ignores_disruption_budget(pod: ObjView) -> bool:
    """Return whether removing the Pod disrupts nothing, because it does not run or is being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in (*_TERMINAL, "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def needs_same_version_to_evict(pod: ObjView) -> bool:
    """Return whether the Pod could become healthy, and protected by a budget, in the meantime."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _TERMINAL and not pod["metadata"].get("deletionTimestamp")


_IGNORE_READ_ERROR = "ignoreStoreReadErrorWithClusterBreakingPotential"


def validate_eviction(eviction: Obj, errs: Errors) -> None:
    if (eviction.get("deleteOptions") or {}).get(_IGNORE_READ_ERROR):
        text = "can not be set for pod eviction, try after removing the option"
        errs.append(invalid(f"deleteOptions.{_IGNORE_READ_ERROR}", True, text))


def delete_options(eviction: Obj, dry_run: Sequence[str]) -> Obj:
    """Return the options to delete the Pod; the dry run of the request and of the body must not contradict each
    other."""
    options = dict(eviction.get("deleteOptions") or {})
    given = options.get("dryRun") or []
    if given and dry_run and list(dry_run) != given:
        raise PlainServerError(
            f"Non-matching dry-run options in request and content: [{' '.join(dry_run)}] and [{' '.join(given)}]"
        )
    if dry_run:
        options["dryRun"] = list(dry_run)
    return options
