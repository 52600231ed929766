"""Builds the status of an autoscaler."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.meta.times import format_time

Obj = dict[str, Any]


class Status:
    def __init__(self, hpa: Obj, now: datetime) -> None:
        self._before: Obj = hpa.get("status") or {}
        self._status: Obj = dict(self._before)
        self._generation = hpa["metadata"].get("generation")
        self._now = format_time(now)

    def is_true(self, kind: str) -> bool:
        return any(
            found["type"] == kind and found["status"] == "True" for found in self._status.get("conditions") or ()
        )

    def set(self, kind: str, status: str, reason: str, message: str) -> None:
        wanted = {"type": kind, "status": status, "reason": reason, "message": message}
        conditions: list[Obj] = list(self._status.get("conditions") or ())
        for place, found in enumerate(conditions):
            if found["type"] == kind:
                since = found.get("lastTransitionTime") if found["status"] == status else self._now
                conditions[place] = {**wanted, "lastTransitionTime": since}
                break
        else:
            conditions.append({**wanted, "lastTransitionTime": self._now})
        self._status["conditions"] = conditions

    def replicas(self, current: int, desired: int | None, metrics: list[Obj] | None, *, rescaled: bool = False) -> None:
        """Set the replica counts; None for `desired` leaves it unchanged."""
        if desired is None:
            desired = self._status.get("desiredReplicas", 0)
        status: Obj = {
            "currentReplicas": current,
            "desiredReplicas": desired,
            "lastScaleTime": self._now if rescaled else self._status.get("lastScaleTime"),
            "currentMetrics": metrics,
            "conditions": self._status.get("conditions"),
            "observedGeneration": self._generation,
        }
        self._status = status

    def changed(self) -> bool:
        return _bare(self._status) != _bare(self._before)

    def result(self) -> Obj:
        return {name: value for name, value in self._status.items() if value is not None}


def _bare(status: Obj) -> Obj:
    """Return the status without empty fields."""
    return {name: value for name, value in status.items() if value}
