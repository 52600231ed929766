"""HorizontalPodAutoscaler: how many replicas something has, by what is measured. This is the stored form, v2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from setpoint.kinds.autoscaling.hpa_conversion import (
    default_behavior,
    drop_round_trip_annotations,
    from_v1,
    to_v1,
)  # fmt: skip
from setpoint.kinds.autoscaling.hpa_metrics import metrics_text, validate_metrics, validate_reference
from setpoint.kinds.columns import AGE, NAME, UNSET
from setpoint.kinds.numbers import NOT_NEGATIVE, non_negative, non_negative_fields
from setpoint.kinds.strategy import Column, Context, Obj, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid, not_supported, required
from setpoint.meta.quantity import compare

__all__ = ["STRATEGY", "from_v1", "to_v1"]

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
        # Only the kind of the core group that can be scaled may be named without a group.
        kind = (spec.get("scaleTargetRef") or {}).get("kind")
        _validate_spec(spec, errs, check_version=True, allow_core=kind == "ReplicationController")

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj["spec"], old["spec"]
        target, known = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
        same = all(target.get(name, "") == known.get(name, "") for name in ("apiVersion", "kind"))
        _validate_spec(
            spec, errs, check_version=not same, allow_core=target.get("kind") == "ReplicationController",
            check_object_versions=not any(_has_bad_object_version(metric) for metric in before.get("metrics") or ()),
        )  # fmt: skip

    columns: Sequence[Column] = (
        NAME,
        Column("Reference", lambda obj, now: _reference(obj), description="What is scaled."),
        Column("Targets", lambda obj, now: _targets(obj), description="What is measured, and what it should be."),
        Column("MinPods", lambda obj, now: str(obj["spec"].get("minReplicas", UNSET)), description="Never fewer."),
        Column("MaxPods", lambda obj, now: obj["spec"].get("maxReplicas", 0), description="Never more."),
        Column("Replicas", lambda obj, now: (obj.get("status") or {}).get("currentReplicas", 0),
               description="How many there are."),
        AGE,
    )  # fmt: skip


class HorizontalPodAutoscalerStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        for i, condition in enumerate(status.get("conditions") or ()):
            non_negative(condition.get("observedGeneration") or 0, f"status.conditions[{i}].observedGeneration", errs)
        non_negative_fields(status, ("currentReplicas", "desiredReplicas"), "status", errs)


def _validate_spec(
    spec: dict[str, Any], errs: Errors, *, check_version: bool, allow_core: bool, check_object_versions: bool = True
) -> None:
    low, high = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if low is not None and high < low:
        errs.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    validate_reference(target, "spec.scaleTargetRef", errs, check_version=check_version, allow_core=allow_core)
    validate_metrics(spec.get("metrics") or [], low, errs, check_versions=check_object_versions)
    behavior = spec.get("behavior")
    if behavior is not None:
        for name in ("scaleUp", "scaleDown"):
            if behavior.get(name) is not None:
                _validate_rules(behavior[name], f"spec.behavior.{name}", errs)
    # Declared at the type itself upstream, and therefore reported after all else.
    if low is not None:
        non_negative(low, "spec.minReplicas", errs)
    if high == 0:
        errs.append(required("spec.maxReplicas"))
    elif high < 0:
        errs.append(invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))


def _validate_rules(rules: dict[str, Any], path: str, errs: Errors) -> None:
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


def _validate_policy(policy: dict[str, Any], path: str, errs: Errors) -> None:
    kind, value, period = policy.get("type", ""), policy.get("value", 0), policy.get("periodSeconds", 0)
    if kind not in _POLICY_TYPES:
        errs.append(not_supported(f"{path}.type", kind, _POLICY_TYPES))
    if value <= 0:
        errs.append(invalid(f"{path}.value", value, "must be greater than zero"))
    if period <= 0:
        errs.append(invalid(f"{path}.periodSeconds", period, "must be greater than zero"))
    if period > _MAX_PERIOD:
        errs.append(invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD}"))


def _has_bad_object_version(metric: dict[str, Any]) -> bool:
    if metric.get("type") != "Object" or metric.get("object") is None:
        return False
    version = (metric["object"].get("describedObject") or {}).get("apiVersion", "")
    return bool(version.count("/") > 1)


def _reference(obj: Obj) -> str:
    target = obj["spec"].get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(obj: Obj) -> str:
    return metrics_text(obj["spec"].get("metrics") or [], (obj.get("status") or {}).get("currentMetrics") or [])


STRATEGY = HorizontalPodAutoscalerStrategy()
STRATEGY.subresources = {"status": HorizontalPodAutoscalerStatusStrategy(STRATEGY)}
