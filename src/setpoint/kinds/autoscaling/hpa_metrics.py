"""Metrics of an autoscaler: validation of metrics and their targets, and their table cell."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.core.resources import validate_container_resource_name
from setpoint.kinds.networking.references import validate_segment
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.quantity import compare

_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_FIELDS = {
    "Object": "object", "Pods": "pods", "Resource": "resource", "External": "external",
    "ContainerResource": "containerResource",
}  # fmt: skip
_ORDER = ("object", "external", "pods", "resource", "containerResource")
"""Order in which upstream checks the sources; only the first one present is validated."""
_RAW_OR_UTILIZATION = "must set either a target raw value or a target utilization"
_UNKNOWN = "<unknown>"


def validate_reference(
    ref: dict[str, Any], path: str, errs: Errors, *, check_version: bool = True, allow_core: bool = True
) -> None:
    for name in ("kind", "name"):
        if not ref.get(name):
            errs.append(required(f"{path}.{name}"))
        validate_segment(ref.get(name, ""), f"{path}.{name}", errs)
    if not check_version:
        return
    version = ref.get("apiVersion", "")
    if version.count("/") > 1:
        errs.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    elif (not allow_core and not version.partition("/")[0]) or (not allow_core and "/" not in version):
        errs.append(invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))


def validate_metrics(
    metrics: list[dict[str, Any]], min_replicas: int | None, errs: Errors, *, check_versions: bool
) -> None:
    for i, metric in enumerate(metrics):
        _validate_metric(metric, f"spec.metrics[{i}]", errs, check_versions)
    if min_replicas == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        errs.append(forbidden("spec.metrics", text))


def _validate_metric(metric: dict[str, Any], path: str, errs: Errors, check_versions: bool) -> None:
    kind = metric.get("type", "")
    if not kind:
        errs.append(required(f"{path}.type", "must specify a metric source type"))
    if kind not in _TYPES:
        errs.append(not_supported(f"{path}.type", kind, _TYPES))
    present = [name for name in _ORDER if metric.get(name) is not None]
    if present:
        first = present[0]
        _validate_source(first, metric[first], f"{path}.{first}", errs, check_versions)
    expected = _FIELDS.get(kind)
    if expected is not None and expected not in present:
        errs.append(required(f"{path}.{expected}", "must populate information for the given metric source"))
    if len(present) != 1:
        for name in present:
            if name != expected:
                errs.append(forbidden(f"{path}.{name}", "must populate the given metric source only"))


def _validate_source(kind: str, source: dict[str, Any], path: str, errs: Errors, check_versions: bool) -> None:
    target = source.get("target") or {}
    value, average = target.get("value"), target.get("averageValue")
    if kind == "object":
        described = source.get("describedObject") or {}
        validate_reference(described, f"{path}.describedObject", errs, check_version=check_versions)
    if kind in ("object", "external", "pods"):
        name = (source.get("metric") or {}).get("name", "")
        if not name:
            errs.append(required(f"{path}.metric.name", "must specify a metric name"))
        validate_segment(name, f"{path}.metric.name", errs)
    else:
        _validate_resource(kind, source, path, errs)
    _validate_target(target, f"{path}.target", errs)
    if kind == "object":
        if value is None and average is None:
            errs.append(required(f"{path}.target.averageValue", "must set either a target value or averageValue"))
    elif kind == "external":
        if value is None and average is None:
            text = "must set either a target value for metric or a per-pod target"
            errs.append(required(f"{path}.target.averageValue", text))
        if value is not None and average is not None:
            text = "may not set both a target value for metric and a per-pod target"
            errs.append(forbidden(f"{path}.target.value", text))
    elif kind == "pods":
        if average is None:
            errs.append(required(f"{path}.target.averageValue", "must specify a positive target averageValue"))
    else:
        utilization = target.get("averageUtilization")
        if utilization is None and average is None:
            errs.append(required(f"{path}.target.averageUtilization", _RAW_OR_UTILIZATION))
        if utilization is not None and average is not None:
            text = "may not set both a target raw value and a target utilization"
            errs.append(forbidden(f"{path}.target.averageValue", text))


def _validate_resource(kind: str, source: dict[str, Any], path: str, errs: Errors) -> None:
    name = source.get("name", "")
    if not name:
        errs.append(required(f"{path}.name", "must specify a resource name"))
    if kind == "containerResource":
        if name:
            validate_container_resource_name(name, f"{path}.name", errs)
        container = source.get("container", "")
        if not container:
            errs.append(required(f"{path}.container", "must specify a container"))
        else:
            errs.extend(invalid(f"{path}.container", container, text) for text in dns1123_label(container))


def _validate_target(target: dict[str, Any], path: str, errs: Errors) -> None:
    kind, utilization = target.get("type", ""), target.get("averageUtilization")
    if not kind:
        errs.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        errs.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for name in ("value", "averageValue"):
        if target.get(name) is not None and compare(target[name], "0") <= 0:
            errs.append(invalid(f"{path}.{name}", target[name], "must be positive"))
    if utilization is not None and utilization < 1:
        errs.append(invalid(f"{path}.averageUtilization", utilization, "must be greater than 0"))


# -- the table ---------------------------------------------------------------------------------------------------------


def metrics_text(specs: list[dict[str, Any]], statuses: list[dict[str, Any]]) -> str:
    """Return the table cell of the metrics: `cpu: 40%/80%, 12/100 (avg) + 1 more...`."""
    if not specs:
        return "<none>"
    texts = [_metric_text(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs)]
    shown = ", ".join(texts[:2])
    return f"{shown} + {len(texts) - 2} more..." if len(texts) > 2 else shown


def _metric_text(spec: dict[str, Any], status: dict[str, Any]) -> str:
    field = _FIELDS.get(spec.get("type", ""))
    if field is None:
        return "<unknown type>"
    source = spec.get(field) or {}
    target = source.get("target") or {}
    current = None if status.get(field) is None else status[field].get("current") or {}
    if field in ("resource", "containerResource"):
        return f"{source.get('name', '')}: {_resource_text(target, current)}"
    if field == "pods":
        return f"{_amount(current, 'averageValue')}/{target.get('averageValue', '<nil>')}"
    if target.get("averageValue") is not None:
        shown = (current or {}).get("averageValue", _UNKNOWN)
        return f"{shown}/{target['averageValue']} (avg)"
    return f"{_amount(current, 'value')}/{target.get('value', '<nil>')}"


def _resource_text(target: dict[str, Any], current: dict[str, Any] | None) -> str:
    if target.get("averageValue") is not None:
        return f"{_amount(current, 'averageValue')}/{target['averageValue']}"
    used = (current or {}).get("averageUtilization")
    wanted = target.get("averageUtilization")
    return f"{_UNKNOWN if used is None else f'{used}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"


def _amount(current: dict[str, Any] | None, name: str) -> str:
    return _UNKNOWN if current is None else str(current.get(name, "<nil>"))
