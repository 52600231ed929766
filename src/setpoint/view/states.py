"""The states of Pods and nodes in one word, as the command line and the page show them."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.meta.conditions import condition_of, is_true
from setpoint.meta.objects import ObjView

READY, STARTING, FAILING, WAITING, SUCCEEDED, FAILED, LEAVING = (
    "ready",
    "starting",
    "failing",
    "waiting for a node",
    "succeeded",
    "failed",
    "leaving",
)
_ORDER = (READY, STARTING, WAITING, FAILING, SUCCEEDED, FAILED, LEAVING)
_STARTING_REASONS = (None, "", "ContainerCreating", "PodInitializing")


def is_ready(obj: ObjView) -> bool:
    """Return whether the object's condition Ready is True."""
    return is_true(obj, "Ready")


def pod_state(pod: ObjView) -> str:
    """Return the state of a Pod by kubectl's names: the phase, or the reason why a container waits."""
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = pod.get("status") or {}
    if reason := waiting_reason(pod):
        return reason
    phase = str(status.get("phase") or "Pending")
    return "NotReady" if phase == "Running" and not is_ready(pod) else phase


def waiting_reason(pod: ObjView) -> str:
    """Return why a container of the Pod waits, such as `ImagePullBackOff`; empty if none waits, or it just starts."""
    status = pod.get("status") or {}
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in _STARTING_REASONS:
            return str(waiting["reason"])
    return ""


def pod_category(pod: ObjView) -> str:
    """Return one of the few states in which Pods are counted: `ready`, `starting`, `failing` and so on."""
    if pod["metadata"].get("deletionTimestamp"):
        return LEAVING
    phase = (pod.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed"):
        return SUCCEEDED if phase == "Succeeded" else FAILED
    if is_ready(pod):
        return READY
    if waiting_reason(pod):
        return FAILING
    return STARTING if (pod.get("spec") or {}).get("nodeName") else WAITING


def pod_counts(pods: Iterable[ObjView]) -> dict[str, int]:
    """Return the number of Pods in each category, in a fixed order and without zeros."""
    found: dict[str, int] = {}
    for pod in pods:
        category = pod_category(pod)
        found[category] = found.get(category, 0) + 1
    return {each: found[each] for each in _ORDER if each in found}


def counts_text(counts: dict[str, int]) -> str:
    """Return counts as text: `2 ready, 1 starting`."""
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def unscheduled_reason(pod: ObjView) -> str:
    """Return why the scheduler has found no node for a Pod, in its own words; empty if it has not failed."""
    scheduled = condition_of(pod, "PodScheduled") or {}
    if scheduled.get("status") != "False":
        return ""
    return str(scheduled.get("message") or scheduled.get("reason") or "").partition(" preemption:")[0].rstrip(".")
