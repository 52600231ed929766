"""Tolerations put together: what another one covers is left out."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.apiserver.admission.plugin import Obj


def merge_tolerations(first: Sequence[Obj], second: Sequence[Obj]) -> list[Obj]:
    everything = [*first, *second]
    merged: list[Obj] = []
    for i, toleration in enumerate(everything):
        if any(covers(kept, toleration) for kept in merged):
            continue
        if any(later != toleration and covers(later, toleration) for later in everything[i + 1 :]):
            continue
        merged.append(toleration)
    return merged


def covers(wide: Obj, narrow: Obj) -> bool:
    """Whether `wide` tolerates all that `narrow` does."""
    if wide == narrow:
        return True
    operator = wide.get("operator", "")
    if narrow.get("key", "") != wide.get("key", "") and (wide.get("key") or operator != "Exists"):
        return False
    if wide.get("effect") and narrow.get("effect", "") != wide["effect"]:
        return False
    if wide.get("effect") == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if operator in ("", "Equal"):
        return narrow.get("operator") == "Equal" and narrow.get("value", "") == wide.get("value", "")
    return bool(operator == "Exists")
