"""One device of a slice: its attributes, capacity, counters and node selection."""

from __future__ import annotations

import re
from typing import Any

from setpoint.kinds.core.podspec.affinity import validate_node_selector
from setpoint.kinds.resource.binding import validate_binding_conditions
from setpoint.kinds.resource.capacity import validate_capacity
from setpoint.kinds.resource.identifiers import (
    KEY_LIMIT,
    declared_unique,
    label_rule,
    oversized,
    required_label,
    shortened,
    validate_qualified_name,
)
from setpoint.kinds.resource.tolerations import declared_effect, validate_taint
from setpoint.meta.field import Errors, invalid, required, too_long, too_many
from setpoint.meta.names import dns1123_subdomain

_MAX_ATTRIBUTES, _MAX_VALUES, _MOST_TAINTS, _MOST_COUNTERS, _LONGEST_VALUE = 32, 48, 16, 32, 64
_VALUES = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")
_NUMBER = r"(0|[1-9]\d*)"
_PRE_RELEASE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = "[0-9a-zA-Z-]+"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+{_BUILD}(\.{_BUILD})*)?", re.ASCII
)


def validate_device(
    device: dict[str, Any], old: dict[str, Any] | None, selects_nodes: bool, path: str, errs: Errors, late: Errors
) -> None:
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
            validate_capacity(amount, bool(device.get("allowMultipleAllocations")), at, errs)
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


def _validate_taints(device: dict[str, Any], old: dict[str, Any] | None, path: str, errs: Errors, late: Errors) -> None:
    taints = device.get("taints") or ()
    unchanged = old is not None and (old.get("taints") or ()) == taints
    if not unchanged and len(taints) > _MOST_TAINTS:
        errs.append(too_many(f"{path}.taints", len(taints), _MOST_TAINTS))
        for i, taint in enumerate(taints):
            declared_effect(taint, f"{path}.taints[{i}]", late)
        return
    for i, taint in enumerate(taints):
        validate_taint(taint, f"{path}.taints[{i}]", [] if unchanged else errs, late)


def validate_counters(holder: dict[str, Any], path: str, errs: Errors, late: Errors) -> None:
    counters, path = holder.get("counters") or {}, f"{path}.counters"
    if not counters:
        late.append(required(path))
        return
    if len(counters) > _MOST_COUNTERS:
        errs.append(too_many(path, len(counters), _MOST_COUNTERS))
    for key in counters:
        label_rule(key, path, late)


def _declared_attribute(attribute: dict[str, Any], path: str, late: Errors) -> None:
    given = [name for name in _VALUES if attribute.get(name) is not None]
    allowed = ", ".join(f"`{name}`" for name in _VALUES)
    if not given:
        late.append(invalid(path, "", f"must specify one of: {allowed}"))
    elif len(given) > 1:
        late.append(invalid(path, "{" + ", ".join(given) + "}", f"must specify exactly one of: {allowed}"))


def _validate_attribute(attribute: dict[str, Any], path: str, errs: Errors) -> None:
    text, version = attribute.get("string"), attribute.get("version")
    if text is not None and len(text.encode()) > _LONGEST_VALUE:
        errs.append(too_long(f"{path}.string", _LONGEST_VALUE))
    if version is not None:
        if not _SEMVER.fullmatch(version):
            message = "must be a string compatible with semver.org spec 2.0.0"
            errs.append(invalid(f"{path}.version", version, message))
        if len(version.encode()) > _LONGEST_VALUE:
            errs.append(too_long(f"{path}.version", _LONGEST_VALUE))


def _validate_nodes(device: dict[str, Any], selects_nodes: bool, path: str, errs: Errors) -> None:
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
