"""Conditions in a status: found, set, dropped. The lists handed in are left as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Condition = dict[str, Any]


def condition(obj: Mapping[str, Any], kind: str) -> Condition | None:
    """Of an object, by type."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found["type"] == kind:
            return dict(found)
    return None


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def without(conditions: Sequence[Condition], kind: str) -> list[Condition]:
    return [found for found in conditions if found["type"] != kind]
