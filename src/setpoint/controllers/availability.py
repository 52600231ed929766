"""Availability of Pods, which depends on the time since they became ready."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import Any

from setpoint.controllers.pods import available_in
from setpoint.reconcile import Result


def requeue_when_available(pods: Iterable[dict[str, Any]], min_ready_seconds: int, now: datetime) -> Result | None:
    """Return a requeue for the moment when the next Pod becomes available, or None if none will."""
    if not min_ready_seconds:
        return None
    waits = (available_in(pod, min_ready_seconds, now) for pod in pods)
    delays = [wait for wait in waits if wait is not None and 0 < wait < inf]
    return Result(requeue_after=min(delays)) if delays else None


def is_available(pod: dict[str, Any], min_ready_seconds: int, now: datetime) -> bool:
    wait = available_in(pod, min_ready_seconds, now)
    return wait is not None and wait <= 0
