"""Taints of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.meta.field import Errors, FieldError, invalid, not_supported, required
from setpoint.meta.names import label_value
from setpoint.meta.objectmeta import validate_label_name

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_taints(taints: Sequence[dict[str, Any]], path: str, errs: Errors) -> None:
    seen = set()
    for i, taint in enumerate(taints):
        key, value, effect = taint.get("key", ""), taint.get("value", ""), taint.get("effect", "")
        validate_label_name(key, f"{path}[{i}].key", errs)
        problems = label_value(value)
        if problems:
            errs.append(invalid(f"{path}[{i}].value", value, ";".join(problems)))
        if not effect:
            errs.append(required(f"{path}[{i}].effect"))
        elif effect not in EFFECTS:
            errs.append(not_supported(f"{path}[{i}].effect", effect, EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            detail = "taints must be unique by key and effect pair"
            errs.append(FieldError("FieldValueDuplicate", f"{path}[{i}]", shown, detail))
        seen.add((key, effect))
