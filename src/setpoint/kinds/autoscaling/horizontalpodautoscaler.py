"""HorizontalPodAutoscaler: sets the number of replicas by metrics. It is stored in the form of v2.

Of v1, only the defaults and the table cells differ: all other hooks get the converted object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from setpoint.kinds.autoscaling.hpa_conversion import (
    default_behavior,
    drop_round_trip_annotations,
    from_v1,
    to_v1,
)
from setpoint.kinds.cell_texts import UNSET
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.resources import validate_container_resource_name
from setpoint.kinds.numbers import NOT_NEGATIVE, non_negative, non_negative_fields
from setpoint.kinds.shared_names import validate_segment
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.decode import zero
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.names import dns1123_label
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare

__all__ = ["STRATEGY", "from_v1", "to_v1"]


_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_FIELDS = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "External": "external",
    "ContainerResource": "containerResource",
}
_ORDER = ("object", "external", "pods", "resource", "containerResource")
"""Order in which upstream checks the sources; only the first one present is validated."""
_RAW_OR_UTILIZATION = "must set either a target raw value or a target utilization"
_UNKNOWN = "<unknown>"


def validate_reference(
    ref: Obj, path: str, errs: Errors, *, check_version: bool = True, allow_core: bool = True
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


def _validate_metrics(metrics: list[Obj], min_replicas: int | None, errs: Errors, *, check_versions: bool) -> None:
    for i, metric in enumerate(metrics):
        _validate_metric(metric, f"spec.metrics[{i}]", errs, check_versions)
    if min_replicas == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        errs.append(forbidden("spec.metrics", text))


def _validate_metric(metric: Obj, path: str, errs: Errors, check_versions: bool) -> None:
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


def _validate_source(kind: str, source: Obj, path: str, errs: Errors, check_versions: bool) -> None:
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


def _validate_resource(kind: str, source: Obj, path: str, errs: Errors) -> None:
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


def _validate_target(target: Obj, path: str, errs: Errors) -> None:
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


def _metrics_text(specs: list[Obj], statuses: list[Obj]) -> str:
    """Return the table cell of the metrics: `cpu: 40%/80%, 12/100 (avg) + 1 more...`."""
    if not specs:
        return "<none>"
    texts = [_metric_text(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs)]
    shown = ", ".join(texts[:2])
    return f"{shown} + {len(texts) - 2} more..." if len(texts) > 2 else shown


def _metric_text(spec: Obj, status: Obj) -> str:
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


def _resource_text(target: Obj, current: Obj | None) -> str:
    if target.get("averageValue") is not None:
        return f"{_amount(current, 'averageValue')}/{target['averageValue']}"
    used = (current or {}).get("averageUtilization")
    wanted = target.get("averageUtilization")
    return f"{_UNKNOWN if used is None else f'{used}%'}/{'<auto>' if wanted is None else f'{wanted}%'}"


def _amount(current: Obj | None, name: str) -> str:
    return _UNKNOWN if current is None else str(current.get(name, "<nil>"))


_MAX_PERIOD, _MAX_WINDOW = 1800, 3600
_POLICY_TYPES = ("Percent", "Pods")
_SELECT_POLICIES = ("Disabled", "Max", "Min")


class HorizontalPodAutoscalerStrategy(Strategy):
    has_status = True
    has_generation = True

    def default(self, obj: Obj) -> None:
        drop_round_trip_annotations(obj)
        spec = obj.setdefault("spec", {})
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        if spec.get("behavior") is not None:
            default_behavior(spec["behavior"])

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj["spec"]
        # Only ReplicationController, the scalable kind of the core group, may be named without a group.
        kind = (spec.get("scaleTargetRef") or {}).get("kind")
        _validate_spec(spec, errs, check_version=True, allow_core=kind == "ReplicationController")

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj["spec"], old["spec"]
        target, known = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
        same = all(target.get(name, "") == known.get(name, "") for name in ("apiVersion", "kind"))
        _validate_spec(
            spec,
            errs,
            check_version=not same,
            allow_core=target.get("kind") == "ReplicationController",
            check_object_versions=not any(_has_bad_object_version(metric) for metric in before.get("metrics") or ()),
        )

    columns: Sequence[Column] = (
        NAME,
        Column("Reference", lambda obj, now: _reference(obj), description="What is scaled."),
        Column("Targets", lambda obj, now: _targets(obj), description="What is measured, and what it should be."),
        Column("MinPods", lambda obj, now: str(obj["spec"].get("minReplicas", UNSET)), description="Never fewer."),
        Column("MaxPods", lambda obj, now: obj["spec"].get("maxReplicas", 0), description="Never more."),
        Column(
            "Replicas",
            lambda obj, now: (obj.get("status") or {}).get("currentReplicas", 0),
            description="How many there are.",
        ),
        AGE,
    )


class HorizontalPodAutoscalerStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        for i, condition in enumerate(status.get("conditions") or ()):
            non_negative(condition.get("observedGeneration") or 0, f"status.conditions[{i}].observedGeneration", errs)
        non_negative_fields(status, ("currentReplicas", "desiredReplicas"), "status", errs)


def _validate_spec(
    spec: Obj, errs: Errors, *, check_version: bool, allow_core: bool, check_object_versions: bool = True
) -> None:
    low, high = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if low is not None and high < low:
        errs.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    validate_reference(target, "spec.scaleTargetRef", errs, check_version=check_version, allow_core=allow_core)
    _validate_metrics(spec.get("metrics") or [], low, errs, check_versions=check_object_versions)
    behavior = spec.get("behavior")
    if behavior is not None:
        for name in ("scaleUp", "scaleDown"):
            if behavior.get(name) is not None:
                _validate_rules(behavior[name], f"spec.behavior.{name}", errs)
    # Upstream declares this at the type and therefore reports it last.
    if low is not None:
        non_negative(low, "spec.minReplicas", errs)
    if high == 0:
        errs.append(required("spec.maxReplicas"))
    elif high < 0:
        errs.append(invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))


def _validate_rules(rules: Obj, path: str, errs: Errors) -> None:
    window, select = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and window < 0:
        errs.append(invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero"))
    if window is not None and window > _MAX_WINDOW:
        text = f"must be less than or equal to {_MAX_WINDOW}"
        errs.append(invalid(f"{path}.stabilizationWindowSeconds", window, text))
    if select is not None and select not in _SELECT_POLICIES:
        errs.append(not_supported(f"{path}.selectPolicy", select, _SELECT_POLICIES))
    policies = rules.get("policies") or []
    if not policies:
        errs.append(required(f"{path}.policies", "must specify at least one Policy"))
    for i, policy in enumerate(policies):
        _validate_policy(policy, f"{path}.policies[{i}]", errs)
    tolerance = rules.get("tolerance")
    if tolerance is not None and compare(tolerance, "0") < 0:
        errs.append(invalid(f"{path}.tolerance", tolerance, NOT_NEGATIVE))


def _validate_policy(policy: Obj, path: str, errs: Errors) -> None:
    kind, value, period = policy.get("type", ""), policy.get("value", 0), policy.get("periodSeconds", 0)
    if kind not in _POLICY_TYPES:
        errs.append(not_supported(f"{path}.type", kind, _POLICY_TYPES))
    if value <= 0:
        errs.append(invalid(f"{path}.value", value, "must be greater than zero"))
    if period <= 0:
        errs.append(invalid(f"{path}.periodSeconds", period, "must be greater than zero"))
    if period > _MAX_PERIOD:
        errs.append(invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD}"))


def _has_bad_object_version(metric: Obj) -> bool:
    if metric.get("type") != "Object" or metric.get("object") is None:
        return False
    version = (metric["object"].get("describedObject") or {}).get("apiVersion", "")
    return bool(version.count("/") > 1)


def _reference(obj: Obj) -> str:
    target = obj["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(obj: Obj) -> str:
    return _metrics_text(obj["spec"].get("metrics") or [], (obj.get("status") or {}).get("currentMetrics") or [])


STRATEGY = HorizontalPodAutoscalerStrategy()
STRATEGY.subresources = {"status": HorizontalPodAutoscalerStatusStrategy(STRATEGY)}


def _cell_of_v1(cell: Callable[[Obj, datetime], Any]) -> Callable[[Obj, datetime], Any]:
    return lambda obj, now: cell(obj if "metrics" in obj["spec"] else from_v1(obj), now)


class HorizontalPodAutoscalerV1Strategy(HorizontalPodAutoscalerStrategy):
    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1

    def reset_status(self, obj: Obj) -> None:
        stored = type_of(definition_for("autoscaling", "v2", "HorizontalPodAutoscaler"))
        obj["status"] = zero(stored.fields["status"].type)

    columns = tuple(
        Column(column.name, _cell_of_v1(column.cell), column.type, column.format, column.description, column.priority)
        for column in HorizontalPodAutoscalerStrategy.columns
    )


STRATEGY_V1 = HorizontalPodAutoscalerV1Strategy()
STRATEGY_V1.subresources = {"status": HorizontalPodAutoscalerStatusStrategy(STRATEGY_V1)}
