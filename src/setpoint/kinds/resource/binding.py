"""Conditions that a device must report before a pod is bound to its node, or that make the binding fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.resource.identifiers import oversized
from setpoint.meta.field import Errors, duplicate, invalid
from setpoint.meta.objectmeta import validate_label_name

_MAX_CONDITIONS = 4


def validate_binding_conditions(holder: Mapping[str, Any], path: str, errs: Errors, late: Errors) -> None:
    wanted, failing = holder.get("bindingConditions") or [], holder.get("bindingFailureConditions") or []
    wanted_path, failing_path = f"{path}.bindingConditions", f"{path}.bindingFailureConditions"
    for names, at in ((wanted, wanted_path), (failing, failing_path)):
        if not oversized(names, _MAX_CONDITIONS, at, late):
            for i, name in enumerate(names):
                validate_label_name(name, f"{at}[{i}]", errs)
    for i, name in enumerate(wanted):
        if name in wanted[:i]:
            errs.append(duplicate(f"{wanted_path}[{i}]", name))
    for i, name in enumerate(failing):
        if name in failing[:i]:
            errs.append(duplicate(f"{failing_path}[{i}]", name))
        if name in wanted:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            errs.append(invalid(f"{failing_path}[{i}]", name, text))
    if failing and not wanted:
        text = "bindingConditions are required to use bindingFailureConditions"
        errs.append(invalid(wanted_path, None, text))
    if wanted and not failing:
        text = "bindingFailureConditions are required to use bindingConditions"
        errs.append(invalid(failing_path, None, text))
