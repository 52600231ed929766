"""Table cells that many kinds share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from setpoint.kinds.strategy import Column
from setpoint.meta.objects import Obj
from setpoint.meta.times import human_duration, parse_time

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"


def since(timestamp: str | None, now: datetime) -> str:
    """Return the time elapsed since `timestamp` in human-readable form: `5m`, `3d2h`."""
    if not timestamp:
        return UNKNOWN
    return human_duration((now - parse_time(timestamp)).total_seconds())


def _name(obj: Obj, now: datetime) -> Any:
    return obj["metadata"].get("name", "")


def _age(obj: Obj, now: datetime) -> Any:
    return since(obj["metadata"].get("creationTimestamp"), now)


NAME = Column("Name", _name, format="name", description="Name of the object, unique within its namespace.")
AGE = Column("Age", _age, description="Time since the object was created.")


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Return `a=1,b=2`, sorted by key."""
    if not labels:
        return NONE
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def list_text(items: Sequence[str], more: bool, count: int, limit: int) -> str:
    """Return the first items, and how many there are besides."""
    text = ",".join(items)
    if more:
        return f"{text} + {count - limit} more..."
    return text or UNSET
