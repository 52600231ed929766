"""Validation that all access reviews share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.internal_form import internal_form
from setpoint.kinds.strategy import Context, Obj, Strategy
from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import label_value
from setpoint.meta.objectmeta import validate_label_name

_PATH_FORM = {"path": "", "verb": ""}
_SELECTORS = (("fieldSelector", False), ("labelSelector", True))


def validate_attributes(spec: Mapping[str, Any], errs: Errors) -> None:
    """Validate that the review is about a resource or about a path, not both."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        shown = None if path is None else internal_form(path, _PATH_FORM)
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        errs.append(invalid("spec", shown, text))


def validate_selectors(spec: Mapping[str, Any], errs: Errors) -> None:
    attributes = spec.get("resourceAttributes") or {}
    for name, of_labels in _SELECTORS:
        if (selector := attributes.get(name)) is not None:
            _validate_selector(selector, of_labels, f"spec.resourceAttributes.{name}", errs)


def _validate_selector(selector: Mapping[str, Any], of_labels: bool, path: str, errs: Errors) -> None:
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
    if raw and requirements:
        errs.append(invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements"))
    if not raw and not requirements:
        text = f"when {path} is specified, requirements or rawSelector is required"
        errs.append(required(f"{path}.requirements", text))
    for i, requirement in enumerate(requirements):
        _validate_requirement(requirement, of_labels, f"{path}.requirements[{i}]", errs)


def _validate_requirement(requirement: Mapping[str, Any], of_labels: bool, path: str, errs: Errors) -> None:
    """Validate a requirement. Unknown operators are accepted: the evaluation handles them."""
    operator, values, key = (requirement.get(name) or "" for name in ("operator", "values", "key"))
    if not of_labels and not key:
        errs.append(required(f"{path}.key", "must be specified"))
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errs.append(forbidden(f"{path}.values", text))
    if of_labels:
        validate_label_name(key, f"{path}.key", errs)
        for i, value in enumerate(values):
            errs.extend(invalid(f"{path}.values[{i}]", value, text) for text in label_value(value))


def validate_empty_metadata(obj: Obj, errs: Errors, allowed: frozenset[str] = frozenset()) -> None:
    meta = obj["metadata"]
    if any(value and key != "managedFields" and key not in allowed for key, value in meta.items()):
        text = "must be empty except for namespace" if allowed else "must be empty"
        errs.append(invalid("metadata", meta, text))


class ReviewStrategy(Strategy):
    """A question. Names play no part: only `validate` is used."""

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return []

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        """Discard the status that the client sent, which the result replaces."""
