"""The table of Jobs."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.columns import AGE, NAME, container_images, container_names, since
from setpoint.kinds.strategy import Column, Obj
from setpoint.meta.selectors import format_labels
from setpoint.meta.times import parse_time


def _first_status(obj: Obj, kind: str) -> bool:
    for condition in (obj.get("status") or {}).get("conditions", ()):
        if condition.get("type") == kind:
            return bool(condition.get("status") == "True")
    return False


def _status(obj: Obj, now: datetime) -> str:
    for kind in ("Complete", "Failed"):
        if _first_status(obj, kind):
            return kind
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if _first_status(obj, kind):
            return kind
    return "Running"


def _completions(obj: Obj, now: datetime) -> str:
    spec, succeeded = obj.get("spec") or {}, (obj.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(obj: Obj, now: datetime) -> str:
    status = obj.get("status") or {}
    started, completed = status.get("startTime"), status.get("completionTime")
    if not started:
        return ""
    return since(started, parse_time(completed) if completed else now)


COLUMNS = (
    NAME,
    Column("Status", _status, description="What has become of it."),
    Column("Completions", _completions, description="Pods that succeeded of those that must."),
    Column("Duration", _duration, description="How long it ran, or has been running."),
    AGE,
    Column("Containers", container_names, priority=1, description="Names of the containers in the template."),
    Column("Images", container_images, priority=1, description="Images of the containers in the template."),
    Column("Selector", lambda obj, now: format_labels((obj.get("spec") or {}).get("selector")), priority=1,
           description="Which Pods belong to it."),
)  # fmt: skip
