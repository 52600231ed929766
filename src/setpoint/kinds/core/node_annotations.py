"""Legacy annotations of nodes that preceded fields: taints and Pods to avoid, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from setpoint.kinds.core.embedded_json import syntax_error
from setpoint.kinds.core.taints import validate_taints
from setpoint.meta.field import Errors, invalid, required

_TAINTS = "scheduler.alpha.kubernetes.io/taints"
_AVOID_PODS = "scheduler.alpha.kubernetes.io/preferAvoidPods"


def validate_node_annotations(annotations: Mapping[str, str], path: str, errs: Errors) -> None:
    if annotations.get(_TAINTS):
        _validate_taints(annotations[_TAINTS], path, errs)
    if annotations.get(_AVOID_PODS):
        _validate_avoid_pods(annotations[_AVOID_PODS], path, errs)


def _folded(item: Mapping[str, Any], name: str) -> Any:
    """Return the value of a key, matched case-insensitively as Go matches the keys of JSON objects."""
    return next((value for key, value in item.items() if key.lower() == name.lower()), None)


def _load(text: str, shape: type, go: str) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError(syntax_error(text.encode())) from None
    if value is not None and not isinstance(value, shape):
        names = {str: "string", bool: "bool", list: "array", dict: "object"}
        raise ValueError(f"json: cannot unmarshal {names.get(type(value), 'number')} into Go value of type {go}")
    return value


def _validate_taints(text: str, path: str, errs: Errors) -> None:
    try:
        items = _load(text, list, "[]core.Taint") or []
        if not all(isinstance(item, dict) for item in items):
            raise ValueError("json: cannot unmarshal value into Go value of type core.Taint")
    except ValueError as error:
        errs.append(invalid(path, _TAINTS, str(error)))
        return
    taints = []
    for item in items:
        taint = {name: _folded(item, name) for name in ("key", "value", "effect", "timeAdded")}
        taints.append({name: value for name, value in taint.items() if value is not None})
    validate_taints(taints, f"{path}.{_TAINTS}", errs)


def _validate_avoid_pods(text: str, path: str, errs: Errors) -> None:
    try:
        avoid = _load(text, dict, "v1.AvoidPods") or {}
    except ValueError as error:
        errs.append(invalid(f"{path}.AvoidPods", _AVOID_PODS, str(error)))
        return
    for i, entry in enumerate(avoid.get("preferAvoidPods") or ()):
        at = f"{path}.{_AVOID_PODS}[{i}].PodSignature"
        owner = (entry.get("podSignature") or {}).get("podController")
        if owner is None:
            errs.append(required(at))
        elif not owner.get("controller"):
            errs.append(invalid(f"{at}.PodController.Controller", False, "must point to a controller"))
