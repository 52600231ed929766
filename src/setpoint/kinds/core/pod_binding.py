"""Binding of a Pod to a node, and eviction: the pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from setpoint.kinds.core.pod_conditions import with_condition
from setpoint.kinds.core.podspec.disabled import drop_init_container_annotations
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_subdomain

Item = Mapping[str, Any]
_TERMINAL = ("Succeeded", "Failed")


def validate_binding(binding: Item, errs: Errors) -> None:
    target = binding.get("target") or {}
    kind, name = target.get("kind", ""), target.get("name", "")
    if kind and kind != "Node":
        errs.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not name:
        errs.append(required("target.name", ""))
    elif kind in ("", "Node"):
        for text in dns1123_subdomain(name):
            errs.append(invalid("target.name", name, text))


def binding_refusal(pod: Item) -> str:
    """Return why this pod cannot be bound (a conflict on `pods/binding`); empty: it can."""
    name, spec = pod["metadata"].get("name", ""), pod["spec"]
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f"pod {name} is already assigned to node {quote(spec['nodeName'])}"
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def bound(pod: Item, binding: Item, now: datetime) -> dict[str, Any]:
    """Return the pod, bound: a new object that shares what did not change. Its generation stays."""
    meta = dict(pod["metadata"])
    for name in ("annotations", "labels"):
        added = (binding.get("metadata") or {}).get(name)
        if added:
            meta[name] = {**(meta.get(name) or {}), **added}
    if meta.get("annotations"):
        meta["annotations"] = dict(meta["annotations"])
        drop_init_container_annotations(meta["annotations"])
    status = {key: value for key, value in (pod.get("status") or {}).items() if key != "nominatedNodeName"}
    status = with_condition(status, "PodScheduled", "True", now)
    return {**pod, "metadata": meta, "spec": {**pod["spec"], "nodeName": binding["target"]["name"]}, "status": status}


def evicted(pod: Item, now: datetime) -> dict[str, Any]:
    """Return the pod with the mark that it is about to be deleted by an eviction."""
    status = with_condition(
        pod.get("status") or {},
        "DisruptionTarget",
        "True",
        now,
        reason="EvictionByEvictionAPI",
        message="Eviction API: evicting",
    )
    return {**pod, "status": status}


def ignores_disruption_budget(pod: Item) -> bool:
    """Return whether removing the Pod disrupts nothing, because it does not run or is being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in (*_TERMINAL, "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def needs_same_version_to_evict(pod: Item) -> bool:
    """Return whether the Pod could become healthy, and protected by a budget, in the meantime."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in _TERMINAL and not pod["metadata"].get("deletionTimestamp")
