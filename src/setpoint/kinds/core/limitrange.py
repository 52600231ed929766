"""LimitRange: bounds and defaults for the resources of Pods, containers and claims in a namespace."""

from __future__ import annotations

from collections.abc import Callable
from uuid import NAMESPACE_OID, uuid5

from setpoint.kinds.core.podspec.resources import round_up_to_milli
from setpoint.kinds.core.resources import (
    is_overcommit_allowed,
    validate_container_resource_name,
    validate_resource_name,
)
from setpoint.kinds.strategy import Context, Strategy
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, required
from setpoint.meta.names import qualified_name
from setpoint.meta.objects import Obj
from setpoint.meta.quantity import NANO, Quantity, parse

_TYPES = frozenset({"Pod", "Container", "PersistentVolumeClaim"})
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_MAX_MILLI = (2**63 - 1) // 1000


class LimitRangeStrategy(Strategy):
    allow_create_on_update = True

    def default(self, obj: Obj) -> None:
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") == "Container":
                limits = {**item.get("max", {}), **item.get("default", {})}
                requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
                if limits:
                    item["default"] = limits
                if requests:
                    item["defaultRequest"] = requests
            for name in _LISTS:
                if name in item:
                    round_up_to_milli(item[name])

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        meta = obj["metadata"]
        if not meta.get(
            "name"
        ):  # Upstream uses a random UUID; this one is derived from the object's, which makes it deterministic.
            meta["name"] = str(uuid5(NAMESPACE_OID, meta.get("uid", "")))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        seen = set()
        for i, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
            path, kind = f"spec.limits[{i}]", item.get("type", "")
            _validate_type(kind, f"{path}.type", errs)
            if kind in seen:
                errs.append(duplicate(f"{path}.type", kind))
            seen.add(kind)
            _validate_item(item, kind, path, errs)


def _validate_type(kind: str, path: str, errs: Errors) -> None:
    problems = qualified_name(kind)
    for text in problems:
        errs.append(invalid(path, kind, text))
    if not problems and "/" not in kind and kind not in _TYPES:
        errs.append(invalid(path, kind, "must be a standard limit type or fully qualified"))


def _validate_item(item: Obj, kind: str, path: str, errs: Errors) -> None:
    rule: Callable[[str, str, Errors], None] = validate_resource_name
    if kind in ("Pod", "Container"):
        rule = validate_container_resource_name
    for name in ("max", "min"):
        for resource in item.get(name, ()):
            rule(resource, f"{path}.{name}[{resource}]", errs)
    defaults: dict[str, str] = {}
    requests: dict[str, str] = {}
    if kind == "Pod":
        for name in ("default", "defaultRequest"):
            if item.get(name):
                errs.append(forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'"))
    else:
        defaults, requests = item.get("default", {}), item.get("defaultRequest", {})
        for name in ("default", "defaultRequest"):
            for resource in item.get(name, ()):
                rule(resource, f"{path}.{name}[{resource}]", errs)
    if kind == "PersistentVolumeClaim":
        if "storage" not in item.get("min", {}) and "storage" not in item.get("max", {}):
            text = "either minimum or maximum storage value is required, but neither was provided"
            errs.append(required(f"{path}.limits", text))
    for resource in item.get("maxLimitRequestRatio", ()):
        rule(resource, f"{path}.maxLimitRequestRatio[{resource}]", errs)
    lists = (item.get("min", {}), item.get("max", {}), defaults, requests, item.get("maxLimitRequestRatio", {}))
    for resource in dict.fromkeys(name for amounts in lists for name in amounts):
        low, high, default, request, ratio = (
            parse(amounts[resource]) if resource in amounts else None for amounts in lists
        )
        _validate_amounts(resource, path, low, high, default, request, errs)
        if ratio is not None:
            _validate_ratio(ratio, low, high, f"{path}.maxLimitRequestRatio[{resource}]", errs)
        if default and request and not is_overcommit_allowed(resource) and default.nano != request.nano:
            text = f"default value {default.text} must equal to defaultRequest value {request.text} in {resource}"
            errs.append(invalid(f"{path}.defaultRequest[{resource}]", request.text, text))


def _validate_amounts(
    resource: str,
    path: str,
    low: Quantity | None,
    high: Quantity | None,
    default: Quantity | None,
    request: Quantity | None,
    errs: Errors,
) -> None:
    def refuse(name: str, shown: Quantity, less: Quantity, what: str, more: Quantity, than: str) -> None:
        text = f"{what} value {less.text} is greater than {than} value {more.text}"
        errs.append(invalid(f"{path}.{name}[{resource}]", shown.text, text))

    if low and high and low.nano > high.nano:
        refuse("min", low, low, "min", high, "max")
    if low and request and low.nano > request.nano:
        refuse("defaultRequest", request, low, "min", request, "default request")
    if request and high and request.nano > high.nano:
        refuse("defaultRequest", request, request, "default request", high, "max")
    if request and default and request.nano > default.nano:
        refuse("defaultRequest", request, request, "default request", default, "default limit")
    if low and default and low.nano > default.nano:
        refuse("default", low, low, "min", default, "default")
    if default and high and default.nano > high.nano:
        refuse("default", high, default, "default", high, "max")


def _validate_ratio(ratio: Quantity, low: Quantity | None, high: Quantity | None, path: str, errs: Errors) -> None:
    if ratio.nano < NANO:
        errs.append(invalid(path, ratio.text, f"ratio {ratio.text} is less than 1"))
    if low is None or high is None:
        return
    value, least, greatest = float(ratio.value()), low.value(), high.value()
    if max(ratio.value(), least, greatest) < _MAX_MILLI:
        value, least, greatest = ratio.milli_value() / 1000, low.milli_value(), high.milli_value()
    # Zero divided by zero exceeds no ratio.
    limit = greatest / least if least else float("inf") if greatest else float("nan")
    if value > limit:
        errs.append(invalid(path, ratio.text, f"ratio {ratio.text} is greater than max/min = {limit:f}"))


STRATEGY = LimitRangeStrategy()
