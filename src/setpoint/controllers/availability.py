"""Pods become available by the mere passing of time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from math import inf
from typing import Any

from setpoint.controllers.pods import available_in
from setpoint.reconcile import Result


def look_again(pods: Iterable[dict[str, Any]], min_ready_seconds: int, now: datetime) -> Result | None:
    """When the next one of them does."""
    if not min_ready_seconds:
        return None
    waits = (available_in(pod, min_ready_seconds, now) for pod in pods)
    still = [wait for wait in waits if wait is not None and 0 < wait < inf]
    return Result(requeue_after=min(still)) if still else None


def is_available(pod: dict[str, Any], min_ready_seconds: int, now: datetime) -> bool:
    wait = available_in(pod, min_ready_seconds, now)
    return wait is not None and wait <= 0
