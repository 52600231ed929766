"""Chooses the adapter of a kind, and adds what is the same for all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from setpoint.meta.conditions import conditions_of
from setpoint.meta.objects import ObjView
from setpoint.meta.selectors import SelectorError, from_label_selector, from_map
from setpoint.meta.times import human_duration, parse_time
from setpoint.view.loop import cluster, generic, pods, workloads
from setpoint.view.loop.values import Drift, Loop, Phase, Related

Adapter = Callable[[ObjView, Related], Loop]
_ADAPTERS: dict[tuple[str, str], Adapter] = {
    ("apps", "Deployment"): workloads.deployment,
    ("apps", "ReplicaSet"): workloads.replicaset,
    ("", "ReplicationController"): workloads.replicaset,
    ("apps", "StatefulSet"): workloads.statefulset,
    ("apps", "DaemonSet"): workloads.daemonset,
    ("batch", "Job"): workloads.job,
    ("batch", "CronJob"): workloads.cronjob,
    ("autoscaling", "HorizontalPodAutoscaler"): workloads.autoscaler,
    ("", "Pod"): pods.pod,
    ("", "Node"): cluster.node,
    ("", "Namespace"): cluster.namespace,
    ("", "Service"): cluster.service,
    ("", "PersistentVolumeClaim"): cluster.claim,
    ("policy", "PodDisruptionBudget"): cluster.budget,
}
_BY_LABEL_SELECTOR = {
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("policy", "PodDisruptionBudget"),
}
"""Kinds whose `spec.selector` is a LabelSelector of their Pods."""
_BY_MAP = {("", "Service"), ("", "ReplicationController")}
"""Kinds whose `spec.selector` is a map of labels of their Pods."""
_OWNED = {("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job")}
"""Kinds that have only the Pods which name them as their controller."""


def look(group: str, kind: str, obj: ObjView, related: Related) -> Loop:
    """Return the loop of an object of this group and kind."""
    adapter = _ADAPTERS.get((group, kind))
    loop = adapter(obj, related) if adapter is not None else generic.any_kind(kind, obj)
    if obj["metadata"].get("deletionTimestamp"):
        _leave(kind, obj, related, loop)
    elif not loop.drift:
        loop.phase = Phase.SETTLED
        loop.action = loop.action or "Nothing is to be done."
    return loop


def _leave(kind: str, obj: ObjView, related: Related, loop: Loop) -> None:
    """Describe the deletion of an object, which every kind undergoes alike."""
    meta = obj["metadata"]
    loop.desired, loop.phase, loop.gauge = ["it does not exist"], Phase.LEAVING, None
    since = ""
    with suppress(ValueError):
        passed = (related.now - parse_time(meta["deletionTimestamp"])).total_seconds()
        since = f" for {human_duration(passed)}" if passed > 0 else ""
    loop.drift = [Drift(f"it has been in deletion{since}" if since else "it is being deleted")]
    finalizers = [str(each) for each in meta.get("finalizers") or ()]
    if kind == "Namespace":
        left = [
            str(each.get("message", "")).rstrip(".")
            for each in conditions_of(obj)
            if each.get("status") == "True" and each.get("type") != "NamespaceDeletionContentSuccess"
        ]
        loop.action = f"namespace-controller deletes what is in it: {left[0]}." if left else "It is being emptied."
    elif "foregroundDeletion" in finalizers:
        loop.action = "generic-garbage-collector deletes its dependents first."
    elif finalizers:
        loop.action = f"It waits for the finalizer {', '.join(finalizers)}."
    elif kind == "Pod" and (node := (obj.get("spec") or {}).get("nodeName")):
        loop.action = f"kubelet {node} stops its containers, and then removes it."
    else:
        loop.action = "It is removed next."


def pods_of(group: str, kind: str, obj: ObjView, found: Iterable[ObjView]) -> list[ObjView] | None:
    """Return those of the Pods that belong to the object or that it selects; None if its kind has no Pods."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    if (group, kind) == ("", "Node"):
        return [each for each in found if (each.get("spec") or {}).get("nodeName") == meta["name"]]
    try:
        if (group, kind) in _BY_LABEL_SELECTOR:
            selector = from_label_selector(spec.get("selector"))
        elif (group, kind) in _BY_MAP:
            selector = from_map(spec.get("selector"))
        else:
            return None
    except SelectorError:
        return []
    return [
        each
        for each in found
        if each["metadata"].get("namespace", "") == meta.get("namespace", "")
        and selector.matches(each["metadata"].get("labels") or {})
        and ((group, kind) not in _OWNED or _is_controlled(each, str(meta.get("uid", ""))))
    ]


def _is_controlled(obj: ObjView, uid: str) -> bool:
    references = obj["metadata"].get("ownerReferences") or ()
    return not uid or any(each.get("uid") == uid and each.get("controller") for each in references)
