"""Taints of devices, and what tolerates them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.names import label_value, qualified_name
from setpoint.meta.objectmeta import validate_label_name
from setpoint.meta.times import format_time

_EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")


def default_tolerations(holder: dict[str, Any]) -> None:
    for toleration in holder.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def stamp_taint(taint: dict[str, Any], now: datetime) -> None:
    if not taint.get("timeAdded"):
        taint["timeAdded"] = format_time(now)


def validate_taint(taint: dict[str, Any], path: str, errs: Errors, late: Errors) -> None:
    validate_label_name(taint.get("key", ""), f"{path}.key", errs)
    if value := taint.get("value", ""):
        errs.extend(invalid(f"{path}.value", value, text) for text in label_value(value))
    declared_effect(taint, path, late)


def declared_effect(taint: dict[str, Any], path: str, late: Errors) -> None:
    effect = taint.get("effect", "")
    if not effect:
        late.append(required(f"{path}.effect"))
    elif effect not in _EFFECTS:
        late.append(not_supported(f"{path}.effect", effect, _EFFECTS))


def validate_toleration(toleration: dict[str, Any], path: str, errs: Errors, late: Errors) -> None:
    if key := toleration.get("key", ""):
        late.extend(invalid(f"{path}.key", key, text) for text in qualified_name(key))
    operator, value = toleration.get("operator", ""), toleration.get("value", "")
    if operator == "Exists":
        if value:
            errs.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        errs.extend(invalid(f"{path}.value", value, text) for text in label_value(value))
    elif not operator:
        late.append(required(f"{path}.operator"))
    else:
        late.append(not_supported(f"{path}.operator", operator, _OPERATORS))
    effect = toleration.get("effect", "")
    if effect and effect not in _EFFECTS:
        late.append(not_supported(f"{path}.effect", effect, _EFFECTS))
