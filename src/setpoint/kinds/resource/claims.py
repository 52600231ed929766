"""The spec of a claim: requests for devices, constraints between them, selectors, and configuration for drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from setpoint.kinds.expressions import Purpose, Usage, expression_errors
from setpoint.kinds.internal_form import items, pointer, struct
from setpoint.kinds.resource.devices import default_tolerations, validate_toleration
from setpoint.kinds.resource.identifiers import (
    Requests,
    declared_driver_name,
    declared_full_name,
    declared_unique,
    label_rule,
    long_name_rule,
    oversized,
    request_names,
    validate_references,
)
from setpoint.meta.field import Errors, invalid, not_supported, required, too_long
from setpoint.meta.objects import Obj

_MAX_BYTES = 10 * 1024
_SELECTOR = Usage(Purpose.DEVICE_SELECTOR)


def validate_selectors(
    selectors: Sequence[Obj] | None, path: str, errs: Errors, late: Errors, stored: bool = False
) -> None:
    """Validate selectors; `stored` says that they are in use already and need not be compiled again."""
    selectors = selectors or ()
    if oversized(selectors, 32, path, late):
        return
    for i, selector in enumerate(selectors):
        cel, at = selector.get("cel"), f"{path}[{i}].cel"
        if cel is None:
            errs.append(required(at))
        elif not stored:
            expression = cel.get("expression", "")
            if len(expression.encode()) > _MAX_BYTES:
                errs.append(too_long(f"{at}.expression", _MAX_BYTES))
                continue
            errs.extend(expression_errors(expression, expression, _SELECTOR, f"{at}.expression"))


def validate_configuration(config: Obj, path: str, errs: Errors, late: Errors, stored: bool = False) -> None:
    opaque = config.get("opaque")
    if opaque is None:
        errs.append(required(f"{path}.opaque"))
        return
    declared_driver_name(opaque.get("driver", ""), f"{path}.opaque.driver", late)
    validate_raw(opaque.get("parameters"), f"{path}.opaque.parameters", errs, stored)


def validate_raw(value: Any, path: str, errs: Errors, stored: bool = False) -> None:
    if value is None:
        errs.append(required(path))
    elif not stored and len(orjson.dumps(value)) > _MAX_BYTES:
        errs.append(too_long(path, _MAX_BYTES))
    elif not isinstance(value, dict):
        errs.append(invalid(path, "<value omitted>", "must be a valid JSON object"))


_MODES = ("All", "ExactCount")
_REQUEST_FORM = {
    "deviceClassName": "",
    "selectors": items({"cel=CEL": pointer({"expression": ""})}),
    "allocationMode": "",
    "count": 0,
    "adminAccess": None,
    "tolerations": items({"key": "", "operator": "", "value": "", "effect": "", "tolerationSeconds": None}),
    "capacity": pointer({"requests": None}),
    "derivedAttributes": None,
}
_SUBREQUEST_FORM = {"name": "", **{key: form for key, form in _REQUEST_FORM.items() if key != "adminAccess"}}
_OPAQUE_FORM = {"driver": "", "parameters": None}
CLAIM_FORM = {
    "devices": struct(
        {
            "requests": items(
                {"name": "", "exactly": pointer(_REQUEST_FORM), "firstAvailable": items(_SUBREQUEST_FORM)}
            ),
            "constraints": items({"requests": None, "matchAttribute": None, "distinctAttribute": None}),
            "config": items({"requests": None, "opaque": pointer(_OPAQUE_FORM)}),
        }
    )
}


def _each_request(spec: Obj) -> list[Obj]:
    found = []
    for request in (spec.get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            found.append(request["exactly"])
        found += request.get("firstAvailable") or ()
    return found


def default_claim(spec: Obj) -> None:
    for request in _each_request(spec):
        if not request.get("allocationMode"):
            request["allocationMode"] = "ExactCount"
        if request["allocationMode"] == "ExactCount" and not request.get("count"):
            request["count"] = 1
        default_tolerations(request)


def drop_disabled(spec: Obj) -> None:
    """Drop derived attributes, a feature that is off by default."""
    for request in _each_request(spec):
        request.pop("derivedAttributes", None)


def validate_claim(spec: Obj, path: str, errs: Errors, late: Errors) -> None:
    devices, path = spec.get("devices") or {}, f"{path}.devices"
    names = request_names(devices)
    requests = devices.get("requests") or ()
    if not oversized(requests, 32, f"{path}.requests", late):
        declared_unique(requests, [request.get("name", "") for request in requests], f"{path}.requests", late)
        for i, request in enumerate(requests):
            _validate_request(request, f"{path}.requests[{i}]", errs, late)
    constraints = devices.get("constraints") or ()
    if not oversized(constraints, 32, f"{path}.constraints", late):
        for i, constraint in enumerate(constraints):
            _validate_constraint(constraint, names, f"{path}.constraints[{i}]", errs, late)
    configs = devices.get("config") or ()
    if not oversized(configs, 32, f"{path}.config", late):
        for i, config in enumerate(configs):
            at = f"{path}.config[{i}]"
            validate_references(config.get("requests"), names, f"{at}.requests", errs, late)
            validate_configuration(config, at, errs, late)


def _validate_request(request: Obj, path: str, errs: Errors, late: Errors) -> None:
    label_rule(request.get("name", ""), f"{path}.name", errs)
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or ()
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        errs.append(required(path, text))
        return
    # Declarative rules on the fields apply to both; the other rules only to the one that is used.
    own = errs
    if exactly is not None and alternatives:
        errs.append(invalid(path, None, f"{text}, but multiple fields are set"))
        own = []
    if exactly is not None:
        _validate_exact(exactly, f"{path}.exactly", own, late)
    at = f"{path}.firstAvailable"
    if not oversized(alternatives, 8, at, late):
        declared_unique(alternatives, [alternative.get("name", "") for alternative in alternatives], at, late)
        for i, alternative in enumerate(alternatives):
            _validate_alternative(alternative, f"{at}[{i}]", own, late)


def _validate_exact(request: Obj, path: str, errs: Errors, late: Errors) -> None:
    _validate_class(request.get("deviceClassName", ""), f"{path}.deviceClassName", errs)
    _validate_wanted(request, path, errs, late)


def _validate_alternative(request: Obj, path: str, errs: Errors, late: Errors) -> None:
    label_rule(request.get("name", ""), f"{path}.name", errs)
    _validate_class(request.get("deviceClassName", ""), f"{path}.deviceClassName", late)
    _validate_wanted(request, path, errs, late)


def _validate_class(name: str, path: str, errs: Errors) -> None:
    if name:
        long_name_rule(name, path, errs)
    else:
        errs.append(required(path))


def _validate_wanted(request: Obj, path: str, errs: Errors, late: Errors) -> None:
    validate_selectors(request.get("selectors"), f"{path}.selectors", errs, late)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    if mode == "All":
        if count:
            errs.append(invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount":
        if count <= 0:
            errs.append(invalid(f"{path}.count", count, "must be greater than zero"))
    else:
        late.append(not_supported(f"{path}.allocationMode", mode, _MODES))
    for i, toleration in enumerate(request.get("tolerations") or ()):
        validate_toleration(toleration, f"{path}.tolerations[{i}]", errs, late)


def _validate_constraint(constraint: Obj, names: Requests, path: str, errs: Errors, late: Errors) -> None:
    validate_references(constraint.get("requests"), names, f"{path}.requests", errs, late)
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    declared_full_name(match, f"{path}.matchAttribute", late)
    declared_full_name(distinct, f"{path}.distinctAttribute", late)
    if match is None and distinct is None:
        text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        errs.append(required(path, text))
