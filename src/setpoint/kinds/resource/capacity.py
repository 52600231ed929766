"""Capacity requests: how much of a device's capacity a request may consume."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from setpoint.meta.field import Errors, duplicate, forbidden, invalid, required, too_many
from setpoint.meta.quantity import add, compare, value

_MAX_VALUES = 10
_MAX_INT64 = 9223372036854775807


def validate_capacity(capacity: dict[str, Any], shared: bool, path: str, errs: Errors) -> None:
    """Validate capacity; `shared` says that the device can be allocated several times, each time in part."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    path = f"{path}.requestPolicy"
    if not shared:
        errs.append(forbidden(path, "allowMultipleAllocations must be true"))
        return
    values, limits, default = policy.get("validValues") or (), policy.get("validRange"), policy.get("default")
    if values and limits is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        errs.append(forbidden(path, text))
        return
    if not values and limits is None:
        return
    if default is None:
        kind = "validValues" if values else "validRange"
        errs.append(required(f"{path}.default", f"required when {kind} is defined"))
    elif values:
        _validate_values(default, capacity.get("value", "0"), values, f"{path}.validValues", errs)
    else:
        assert limits is not None
        _validate_range(default, capacity.get("value", "0"), limits, f"{path}.validRange", errs)


def _validate_values(default: str, most: str, values: Sequence[str], path: str, errs: Errors) -> None:
    for i, (lower, higher) in enumerate(pairwise(values)):
        if compare(lower, higher) > 0:
            errs.append(invalid(f"{path}[{i + 1}]", higher, "values must be sorted in ascending order"))
    found = False
    if len(values) > _MAX_VALUES:
        errs.append(too_many(path, len(values), _MAX_VALUES))
    else:
        for i, option in enumerate(values):
            if compare(option, most) > 0:
                errs.append(invalid(f"{path}[{i}]", option, f"option is larger than capacity value: {most}"))
            found = found or compare(option, default) == 0
        numbers = [value(option) for option in values]
        for i, number in enumerate(numbers):
            if number in numbers[:i]:
                errs.append(duplicate(f"{path}[{i}]", str(number)))
    if not found:
        errs.append(invalid(path, default, "default value is not valid according to the requestPolicy"))


def _validate_range(default: str, most: str, limits: dict[str, Any], path: str, errs: Errors) -> None:
    low, high, step = limits.get("min"), limits.get("max"), limits.get("step")
    if low is None:
        errs.append(required(f"{path}.min", "required when validRange is defined"))
        return
    if compare(low, most) > 0:
        errs.append(invalid(f"{path}.min", low, f"min is larger than capacity value: {most}"))
    if compare(default, low) < 0:
        errs.append(invalid(f"{path}.default", default, f"default is less than min: {low}"))
    if high is not None:
        if compare(low, high) > 0:
            errs.append(invalid(f"{path}.max", low, f"min is larger than max: {high}"))
        if compare(high, most) > 0:
            errs.append(invalid(f"{path}.max", high, f"max is larger than capacity value: {most}"))
        if compare(default, high) > 0:
            errs.append(invalid(f"{path}.default", default, f"default is more than max: {high}"))
    named = [
        (name, quantity) for name, quantity in (("default", default), ("min", low), ("max", high), ("step", step))
        if quantity is not None
    ]  # fmt: skip
    if step is None:
        return
    if compare(step, "0") <= 0:
        errs.append(invalid(f"{path}.step", step, "must be greater than zero"))
        return
    added = add(low, step)
    if compare(added, most) > 0:
        text = f"one step {added} is larger than capacity value: {most}"
        errs.append(invalid(f"{path}.step", step, text))
    before = len(errs)
    for name, quantity in named:
        if compare(quantity, "0") < 0:
            errs.append(invalid(f"{path}.{name}", quantity, "must be greater than or equal to 0"))
        elif compare(quantity, str(_MAX_INT64)) > 0:
            errs.append(invalid(f"{path}.{name}", quantity, f"must not be larger than {_MAX_INT64}"))
    if len(errs) > before:
        return
    for quantity in (default, high):
        # Whole numbers: parts of one count as one.
        if quantity is not None and (value(quantity) - value(low)) % value(step):
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            errs.append(invalid(f"{path}.step", quantity, text))
