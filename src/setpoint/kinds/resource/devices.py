"""Devices of a slice: attributes, capacity, counters, taints, binding conditions and node selection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from setpoint.kinds.core.podspec.scheduling import validate_node_selector
from setpoint.kinds.resource.identifiers import (
    KEY_LIMIT,
    declared_unique,
    label_rule,
    oversized,
    required_label,
    shortened,
    validate_qualified_name,
)
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required, too_long, too_many
from setpoint.meta.names import dns1123_subdomain, label_value, qualified_name
from setpoint.meta.objectmeta import validate_label_name
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import add, compare, value
from setpoint.meta.times import format_time

_EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")


def default_tolerations(holder: Obj) -> None:
    for toleration in holder.get("tolerations") or ():
        if not toleration.get("operator"):
            toleration["operator"] = "Equal"


def stamp_taint(taint: Obj, now: datetime) -> None:
    if not taint.get("timeAdded"):
        taint["timeAdded"] = format_time(now)


def validate_taint(taint: Obj, path: str, errs: Errors, late: Errors) -> None:
    validate_label_name(taint.get("key", ""), f"{path}.key", errs)
    if value := taint.get("value", ""):
        errs.extend(invalid(f"{path}.value", value, text) for text in label_value(value))
    _declared_effect(taint, path, late)


def _declared_effect(taint: Obj, path: str, late: Errors) -> None:
    effect = taint.get("effect", "")
    if not effect:
        late.append(required(f"{path}.effect"))
    elif effect not in _EFFECTS:
        late.append(not_supported(f"{path}.effect", effect, _EFFECTS))


def validate_toleration(toleration: Obj, path: str, errs: Errors, late: Errors) -> None:
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


_MAX_VALID_VALUES = 10
_MAX_INT64 = 9223372036854775807


def _validate_capacity(capacity: Obj, shared: bool, path: str, errs: Errors) -> None:
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
    if len(values) > _MAX_VALID_VALUES:
        errs.append(too_many(path, len(values), _MAX_VALID_VALUES))
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


def _validate_range(default: str, most: str, limits: Obj, path: str, errs: Errors) -> None:
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
        (name, quantity)
        for name, quantity in (("default", default), ("min", low), ("max", high), ("step", step))
        if quantity is not None
    ]
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
        # Fractions round up to whole numbers.
        if quantity is not None and (value(quantity) - value(low)) % value(step):
            text = f"value is not a multiple of a given step ({step}) from ({low})"
            errs.append(invalid(f"{path}.step", quantity, text))


_MAX_CONDITIONS = 4


def validate_binding_conditions(holder: ObjView, path: str, errs: Errors, late: Errors) -> None:
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


_MAX_ATTRIBUTES, _MAX_VALUES, _MAX_TAINTS, _MAX_COUNTERS, _MAX_VALUE_LENGTH = 32, 48, 16, 32, 64
_VALUES = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_NUMBER = r"(0|[1-9]\d*)"
_PRE_RELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)


def validate_device(device: Obj, old: Obj | None, selects_nodes: bool, path: str, errs: Errors, late: Errors) -> None:
    """Validate a device. `selects_nodes` says that each device of the slice specifies its own nodes."""
    label_rule(device.get("name", ""), f"{path}.name", errs)
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > _MAX_ATTRIBUTES:
        text = f"the total number of attributes and capacities must not exceed {_MAX_ATTRIBUTES}"
        errs.append(invalid(path, count, text))
    for key, attribute in attributes.items():
        validate_qualified_name(key, f"{path}.attributes", errs)
        _validate_attribute(attribute, f"{path}.attributes[{shortened(key, KEY_LIMIT)}]", errs)
        _declared_attribute(attribute, f"{path}.attributes[{key}]", late)
    if old is None or (old.get("capacity") or {}) != capacity:
        for key, amount in capacity.items():
            validate_qualified_name(key, f"{path}.capacity", errs)
            at = f"{path}.capacity[{shortened(key, KEY_LIMIT)}]"
            _validate_capacity(amount, bool(device.get("allowMultipleAllocations")), at, errs)
    declared_taints: Errors = []
    _validate_taints(device, old, path, errs, declared_taints)
    consumed, at = device.get("consumesCounters") or (), f"{path}.consumesCounters"
    if not oversized(consumed, 2, at, late):
        declared_unique(consumed, [item.get("counterSet", "") for item in consumed], at, late)
        for i, item in enumerate(consumed):
            required_label(item.get("counterSet", ""), f"{at}[{i}].counterSet", late)
            validate_counters(item, f"{at}[{i}]", errs, late)
    late.extend(declared_taints)
    _validate_nodes(device, selects_nodes, path, errs)
    validate_binding_conditions(device, path, errs, late)


def _validate_taints(device: Obj, old: Obj | None, path: str, errs: Errors, late: Errors) -> None:
    taints = device.get("taints") or ()
    unchanged = old is not None and (old.get("taints") or ()) == taints
    if not unchanged and len(taints) > _MAX_TAINTS:
        errs.append(too_many(f"{path}.taints", len(taints), _MAX_TAINTS))
        for i, taint in enumerate(taints):
            _declared_effect(taint, f"{path}.taints[{i}]", late)
        return
    for i, taint in enumerate(taints):
        validate_taint(taint, f"{path}.taints[{i}]", [] if unchanged else errs, late)


def validate_counters(holder: Obj, path: str, errs: Errors, late: Errors) -> None:
    counters, path = holder.get("counters") or {}, f"{path}.counters"
    if not counters:
        late.append(required(path))
        return
    if len(counters) > _MAX_COUNTERS:
        errs.append(too_many(path, len(counters), _MAX_COUNTERS))
    for key in counters:
        label_rule(key, path, late)


def _declared_attribute(attribute: Obj, path: str, late: Errors) -> None:
    given = [name for name in _VALUES if attribute.get(name) is not None]
    allowed = ", ".join(f"`{name}`" for name in _VALUES)
    if not given:
        late.append(invalid(path, "", f"must specify one of: {allowed}"))
    elif len(given) > 1:
        late.append(invalid(path, "{" + ", ".join(given) + "}", f"must specify exactly one of: {allowed}"))


def _validate_attribute(attribute: Obj, path: str, errs: Errors) -> None:
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _MAX_VALUE_LENGTH:
        errs.append(too_long(f"{path}.string", _MAX_VALUE_LENGTH))
    if version is not None:
        if not _SEMVER.fullmatch(version):
            message = "must be a string compatible with semver.org spec 2.0.0"
            errs.append(invalid(f"{path}.version", version, message))
        if len(version.encode()) > _MAX_VALUE_LENGTH:
            errs.append(too_long(f"{path}.version", _MAX_VALUE_LENGTH))


def _validate_nodes(device: Obj, selects_nodes: bool, path: str, errs: Errors) -> None:
    name, selector, everywhere = device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes")
    if not selects_nodes:
        if name is not None or selector is not None or everywhere is not None:
            text = (
                "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true "
                "in the ResourceSlice spec"
            )
            errs.append(invalid(path, None, text))
        return
    given = []
    if name is not None:
        if name:
            given.append("`nodeName`")
            errs.extend(invalid(f"{path}.nodeName", name, text) for text in dns1123_subdomain(name))
        else:
            errs.append(invalid(f"{path}.nodeName", name, "must not be empty"))
    if selector is not None:
        given.append("`nodeSelector`")
        validate_node_selector(selector, f"{path}.nodeSelector", errs)
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        errs.append(invalid(f"{path}.allNodes", False, "must be either unset or set to true"))
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to "
        "true in the ResourceSlice spec"
    )
    if not given:
        errs.append(required(path, text))
    elif len(given) > 1:
        errs.append(invalid(path, "{" + ", ".join(given) + "}", text))
