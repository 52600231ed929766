"""PodDisruptionBudget: limits how many Pods of a set may be disrupted at a time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.numbers import at_most_100_percent, int_or_percent, non_negative_fields
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid, not_supported
from setpoint.meta.names import path_segment, path_segment_prefix
from setpoint.meta.objectmeta import validate_conditions, validate_label_selector
from setpoint.meta.objects import Obj

_LABEL = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
_MATCH_NONE = {"matchExpressions": [{"key": _LABEL, "operator": "Exists"}]}
_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_STATUS_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _bound(name: str) -> Callable[[Obj, datetime], str]:
    return lambda obj, now: str(_spec(obj).get(name, "N/A"))


class PodDisruptionBudgetStrategy(Strategy):
    qualified_finalizers = False
    columns = (
        NAME,
        Column("Min Available", _bound("minAvailable"), description="Pods that must stay up."),
        Column("Max Unavailable", _bound("maxUnavailable"), description="Pods that may be down."),
        Column(
            "Allowed Disruptions",
            lambda obj, now: (obj.get("status") or {}).get("disruptionsAllowed", 0),
            type="integer",
            description="Pods that may be disrupted now.",
        ),
        AGE,
    )
    has_status = True
    has_generation = True
    allow_unconditional_update = False

    def __init__(self) -> None:
        self.subresources = {"status": PodDisruptionBudgetStatusStrategy(self)}

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return path_segment_prefix(name) if prefix else path_segment(name)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        _strip_label(_spec(obj))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        if _spec(obj).get("selector") != _spec(old).get("selector"):
            _strip_label(_spec(obj))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(_spec(obj), errs, allow_invalid_values=False)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        problems: Errors = []
        validate_label_selector(_spec(old).get("selector"), "", problems)
        _validate_spec(_spec(obj), errs, allow_invalid_values=bool(problems))


class PodDisruptionBudgetStatusStrategy(StatusStrategy):
    qualified_finalizers = False
    allow_unconditional_update = False

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        validate_conditions(status.get("conditions") or (), "status.conditions", errs)
        non_negative_fields(status, _STATUS_COUNTS, "status", errs)


def _strip_label(spec: Obj) -> None:
    """Remove the label that means match-none in storage, which must not be mixed with a user's expressions."""
    selector = spec.get("selector")
    if not selector or selector == _MATCH_NONE:
        return
    expressions = [each for each in selector.get("matchExpressions", ()) if each.get("key") != _LABEL]
    if expressions:
        selector["matchExpressions"] = expressions
    else:
        selector.pop("matchExpressions", None)


def _validate_spec(spec: Obj, errs: Errors, *, allow_invalid_values: bool) -> None:
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        errs.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            int_or_percent(spec[name], f"spec.{name}", errs)
            at_most_100_percent(spec[name], f"spec.{name}", errs)
    validate_label_selector(spec.get("selector"), "spec.selector", errs, allow_invalid_values=allow_invalid_values)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _POLICIES:
        errs.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))


STRATEGY = PodDisruptionBudgetStrategy()
