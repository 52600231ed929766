"""Finds, sets and removes status conditions without modifying the lists it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Condition = dict[str, Any]


def condition(obj: Mapping[str, Any], kind: str) -> Condition | None:
    """Return the condition of this type, or None."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found["type"] == kind:
            return dict(found)
    return None


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def without(conditions: Sequence[Condition], kind: str) -> list[Condition]:
    return [found for found in conditions if found["type"] != kind]
