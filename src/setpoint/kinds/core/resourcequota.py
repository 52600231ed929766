"""ResourceQuota: limits the usage of each resource in a namespace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec.resources import round_up_to_milli
from setpoint.kinds.core.resources import (
    is_quota_huge_page,
    is_standard,
    validate_resource_amount,
    validate_resource_name,
)
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import compare


def _is_standard_quota(name: str) -> bool:
    """Return whether quota supports the name: every standard resource but plain `storage`."""
    return (is_standard(name) and name != "storage") or is_quota_huge_page(name)


def _validate_quota_resource_name(name: str, path: str, errs: Errors) -> None:
    validate_resource_name(name, path, errs)
    if "/" not in name and not _is_standard_quota(name):
        errs.append(invalid(path, name, "must be a standard resource for quota"))


_POD_RESOURCES = frozenset(
    {
        "pods",
        "cpu",
        "memory",
        "limits.cpu",
        "limits.memory",
        "requests.cpu",
        "requests.memory",
    }
)
_SCOPE_RESOURCES = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_ONLY_EXISTS = frozenset({"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"})
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def _usage(wanted: Callable[[str], bool]) -> Callable[[Obj, datetime], str]:
    def cell(obj: Obj, now: datetime) -> str:
        status = obj.get("status") or {}
        hard, used = status.get("hard", {}), status.get("used", {})
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in sorted(hard) if wanted(name))

    return cell


def _is_limit(name: str) -> bool:
    return name.startswith("limits.")


class ResourceQuotaStrategy(Strategy):
    columns = (
        NAME,
        Column("Request", _usage(lambda name: not _is_limit(name)), description="Requests and counts: used and hard."),
        Column("Limit", _usage(_is_limit), description="Limits: used and hard."),
        AGE,
    )
    has_status = True
    returns_deleted = True

    def __init__(self) -> None:
        self.subresources = {"status": ResourceQuotaStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        for part, names in (("spec", ("hard",)), ("status", ("hard", "used"))):
            holder = obj.get(part) or {}
            for name in names:
                round_up_to_milli(holder.get(name) or {})

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        spec = obj.get("spec") or {}
        hard = spec.get("hard") or {}
        _validate_amounts(hard, "spec.hard", errs)
        _validate_scopes(spec.get("scopes") or [], hard, errs)
        if "scopeSelector" in spec:
            _validate_selector(spec["scopeSelector"], spec.get("scopes"), hard, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate(obj, errs, ctx)
        scopes, before = (obj.get("spec") or {}).get("scopes"), (old.get("spec") or {}).get("scopes")
        if set(scopes or ()) != set(before or ()):
            errs.append(invalid("spec.scopes", scopes, IMMUTABLE))

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        hard = (obj.get("spec") or {}).get("hard") or {}
        warnings = []
        for name in ("cpu", "memory", "storage", "ephemeral-storage"):
            request, limit = f"requests.{name}", f"limits.{name}"
            if request not in hard and name in ("cpu", "memory"):
                request = name
            if request in hard and limit in hard and compare(hard[request], hard[limit]) > 0:
                text = f"ResourceQuota {request} ({hard[request]}) should be less than {limit} ({hard[limit]})"
                warnings.append(text)
        return warnings

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return []


class ResourceQuotaStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        _validate_amounts(status.get("hard") or {}, "status.hard", errs)
        _validate_amounts(status.get("used") or {}, "status.used", errs)


def _validate_amounts(amounts: dict[str, str], path: str, errs: Errors) -> None:
    for name, amount in amounts.items():
        _validate_quota_resource_name(name, f"{path}[{name}]", errs)
        validate_resource_amount(name, amount, f"{path}[{name}]", errs)


def _count_unsupported(scope: str, hard: dict[str, str]) -> int:
    """Return how many of the limited resources this scope does not support."""
    allowed = _SCOPE_RESOURCES.get(scope)
    return 0 if allowed is None else sum(_is_standard_quota(name) and name not in allowed for name in hard)


def _validate_scopes(scopes: list[str], hard: dict[str, str], errs: Errors) -> None:
    for scope in scopes:
        if scope not in _SCOPE_RESOURCES:
            errs.append(invalid("spec.scopes", scopes, "unsupported scope"))
        error = invalid("spec.scopes", scopes, "unsupported scope applied to resource")
        errs.extend([error] * _count_unsupported(scope, hard))
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            errs.append(invalid("spec.scopes", scopes, "conflicting scopes"))


def _validate_selector(selector: Obj, scopes: list[str] | None, hard: dict[str, str], errs: Errors) -> None:
    path = "spec.scopeSelector.matchExpressions"
    expressions = selector.get("matchExpressions") or ()
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values")
        if scope not in _SCOPE_RESOURCES:
            errs.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        shown = {
            "MatchExpressions": [
                {
                    "ScopeName": each.get("scopeName", ""),
                    "Operator": each.get("operator", ""),
                    "Values": each.get("values"),
                }
                for each in expressions
            ]
        }
        errs.extend([invalid(path, shown, "unsupported scope applied to resource")] * _count_unsupported(scope, hard))
        if scope in _ONLY_EXISTS and operator != "Exists":
            text = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, "
                "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            errs.append(invalid(f"{path}.operator", operator, text))
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errs.append(required(f"{path}.values", text))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errs.append(invalid(f"{path}.values", values, text))
        else:
            errs.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    for pair in _CONFLICTS:
        if pair <= {each.get("scopeName") for each in expressions}:
            errs.append(invalid(path, scopes, "conflicting scopes"))


STRATEGY = ResourceQuotaStrategy()
