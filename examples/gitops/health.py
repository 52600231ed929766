"""Whether an object has become what it should be."""

from __future__ import annotations

from setpoint.meta.objects import Obj
from setpoint.sdk import is_true


def ailment(obj: Obj) -> str:
    """What is still missing; empty if nothing is."""
    status = obj.get("status") or {}
    if status.get("observedGeneration", obj["metadata"].get("generation")) != obj["metadata"].get("generation"):
        return "its controller has not looked at it yet"
    match obj["kind"]:
        case "Deployment" | "StatefulSet" | "ReplicaSet" | "DaemonSet":
            return _workload(obj, status)
        case "Job":
            return "" if is_true(obj, "Complete") else "it has failed" if is_true(obj, "Failed") else "it runs"
        case "PersistentVolumeClaim" | "Pod" | "Namespace":
            phase = status.get("phase", "Pending")
            return "" if phase in ("Bound", "Running", "Succeeded", "Active") else f"it is {phase}"
        case "CustomResourceDefinition":
            return "" if is_true(obj, "Established") else "it is not served yet"
        case _:
            return _by_conditions(status)


def _workload(obj: Obj, status: Obj) -> str:
    if obj["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        ready, updated = status.get("numberReady", 0), status.get("updatedNumberScheduled", 0)
    else:
        wanted = obj["spec"].get("replicas", 1)
        ready = status.get("readyReplicas", 0)
        updated = ready if obj["kind"] == "ReplicaSet" else status.get("updatedReplicas", 0)
    if "observedGeneration" not in status:
        return "its controller has not looked at it yet"
    if min(ready, updated) < wanted:
        return f"{min(ready, updated)} of {wanted} are ready"
    return ""


def _by_conditions(status: Obj) -> str:
    """Of kinds that we do not know: many say by a condition whether they are well."""
    for condition in status.get("conditions") or ():
        if condition["type"] in ("Ready", "Available") and condition["status"] != "True":
            return condition.get("message") or f"{condition['type']} is {condition['status']}"
    return ""
