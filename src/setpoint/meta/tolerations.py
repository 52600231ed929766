"""Which taints a Pod tolerates."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
REPELLING = (NO_SCHEDULE, NO_EXECUTE)
"""Taint effects that exclude a Pod from a node; the third effect only lowers the node's score."""


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return bool((toleration.get("value") or "") == (taint.get("value") or ""))
    return bool(operator == "Exists")


def untolerated(
    taints: Iterable[Mapping[str, Any]],
    tolerations: Collection[Mapping[str, Any]],
    effects: Collection[str] = REPELLING,
) -> Mapping[str, Any] | None:
    """Return the first taint with one of these effects that nothing tolerates."""
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(each, taint) for each in tolerations):
            return taint
    return None
