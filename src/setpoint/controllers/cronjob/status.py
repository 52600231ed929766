"""The status of a CronJob: active Jobs, last scheduled time and last success."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from setpoint.controllers.job.job_conditions import finished_condition

Obj = dict[str, Any]


def finished_as(job: Obj) -> str:
    """Return Complete or Failed, or an empty string while the Job is active."""
    found = finished_condition(job)
    return "" if found is None else str(found["type"])


def is_listed(status: Obj, uid: str) -> bool:
    return any(active.get("uid") == uid for active in status.get("active") or ())


def unlist(status: Obj, uid: str) -> None:
    left = [active for active in status.get("active") or () if active.get("uid") != uid]
    if left:
        status["active"] = left
    else:
        status.pop("active", None)


def enlist(status: Obj, job: Obj) -> None:
    meta = job["metadata"]
    reference = {
        "kind": "Job",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta["uid"],
        "apiVersion": "batch/v1",
        "resourceVersion": meta["resourceVersion"],
    }
    status["active"] = [*(status.get("active") or ()), reference]


def note_success(status: Obj, job: Obj) -> bool:
    """Record a success. Return whether it is later than the one recorded before."""
    completed = (job.get("status") or {}).get("completionTime")
    if completed is None or completed <= status.get("lastSuccessfulTime", ""):
        return False
    status["lastSuccessfulTime"] = completed
    return True


def oldest_first(jobs: Iterable[Obj]) -> list[Obj]:
    """Sort by start time; Jobs that never started come last."""

    def start(job: Obj) -> tuple[bool, str, str]:
        started = (job.get("status") or {}).get("startTime")
        return started is None, started or "", job["metadata"]["name"]

    return sorted(jobs, key=start)
