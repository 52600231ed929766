"""Conditions of a StorageVersionMigration. Pure functions."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.controllers.conditions import condition, is_true
from setpoint.meta.times import format_time

Obj = dict[str, Any]

RUNNING, SUCCEEDED, FAILED = "Running", "Succeeded", "Failed"
RUNNING_REASON = "MigrationRunning"
SUCCESS_REASON, FAILURE_REASON = "StorageVersionMigrationSucceeded", "StorageVersionMigrationFailed"


def is_over(migration: Obj) -> bool:
    return is_true(migration, SUCCEEDED) or is_true(migration, FAILED)


def is_running(migration: Obj) -> bool:
    return is_true(migration, RUNNING)


def progress(left: int | None = None, total: int = 0, error: object = None) -> str:
    """Return a progress message; `left` is None before the objects were counted."""
    text = "The migration is running"
    if left is not None and total:
        text += f", {left}/{total} objects not yet migrated" if left else f", {total} objects verified migrated"
    return f"{text}; transient error: {error}" if error is not None else text


def with_condition(migration: Obj, now: datetime, kind: str, status: str, reason: str, message: str) -> Obj:
    before = condition(migration, kind)
    since = before["lastTransitionTime"] if before and before.get("status") == status else format_time(now)
    made = {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
    if kind == RUNNING and status == "False":
        made["observedGeneration"] = migration["metadata"].get("generation", 0)
    found = list((migration.get("status") or {}).get("conditions") or ())
    places = [number for number, each in enumerate(found) if each["type"] == kind]
    if places:
        found[places[0]] = made
    else:
        found.append(made)
    return {**migration, "status": {**(migration.get("status") or {}), "conditions": found}}


def next_of(migrations: list[Obj]) -> Obj | None:
    """Return the migration to run now: the oldest of one resource."""
    if any(is_running(each) and not is_over(each) for each in migrations):
        return None
    waiting = [each for each in migrations if not is_running(each) and not is_over(each)]
    return min(
        waiting, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]), default=None
    )
