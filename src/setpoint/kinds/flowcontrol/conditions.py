"""Conditions of both kinds: a type each, and each type once."""

from __future__ import annotations

from setpoint.kinds.status_metadata import BareStatusStrategy
from setpoint.kinds.strategy import Context, Obj
from setpoint.meta.field import Errors, duplicate, required


def validate_status(obj: Obj, errs: Errors) -> None:
    seen: set[str] = set()
    for i, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
        kind, at = condition.get("type", ""), f"status.conditions[{i}].type"
        if kind in seen:
            errs.append(duplicate(at, kind))
        seen.add(kind)
        if not kind:
            errs.append(required(at))


class FlowControlStatusStrategy(BareStatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_status(obj, errs)
