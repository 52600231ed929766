"""Affinity: which nodes, and the neighbourhood of which pods. Node selector terms serve volumes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.meta.field import Errors, forbidden, invalid, required
from setpoint.meta.names import dns1123_label, dns1123_subdomain, label_value
from setpoint.meta.objectmeta import validate_label_name, validate_label_selector

Item = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_BAD_OPERATOR = "not a valid selector operator"


def validate_affinity(affinity: Item, path: str, errs: Errors, *, options: PodOptions) -> None:
    node = affinity.get("nodeAffinity")
    if node is not None:
        at = f"{path}.nodeAffinity"
        if REQUIRED in node:
            loose = options.allow_invalid_node_affinity_values
            validate_node_selector(node[REQUIRED], f"{at}.{REQUIRED}", errs, allow_invalid_values=loose)
        for i, term in enumerate(node.get(PREFERRED, ())):
            _validate_weight(term, f"{at}.{PREFERRED}[{i}]", errs)
            # Values are never checked in preferences: they can be met on a cluster of one node.
            preference = term.get("preference") or {}
            validate_node_selector_term(
                preference, f"{at}.{PREFERRED}[{i}].preference", errs, allow_invalid_values=True
            )
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind)
        if terms is not None:
            _validate_pod_affinity(terms, f"{path}.{kind}", errs, options.allow_invalid_selector_values)


def _validate_weight(term: Item, path: str, errs: Errors) -> None:
    weight = term.get("weight", 0)
    if not 0 < weight <= 100:
        errs.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def _validate_pod_affinity(affinity: Item, path: str, errs: Errors, loose: bool) -> None:
    for i, term in enumerate(affinity.get(REQUIRED, ())):
        _validate_pod_affinity_term(term, f"{path}.{REQUIRED}[{i}]", errs, loose)
    for i, weighted in enumerate(affinity.get(PREFERRED, ())):
        at = f"{path}.{PREFERRED}[{i}]"
        _validate_weight(weighted, at, errs)
        _validate_pod_affinity_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm", errs, loose)


def _validate_pod_affinity_term(term: Item, path: str, errs: Errors, loose: bool) -> None:
    for name in ("labelSelector", "namespaceSelector"):
        validate_label_selector(term.get(name), f"{path}.{name}", errs, allow_invalid_values=loose)
    for namespace in term.get("namespaces", ()):
        for text in dns1123_label(namespace):
            errs.append(invalid(f"{path}.namespace", namespace, text))
    validate_match_label_keys(
        term.get("matchLabelKeys", ()), term.get("mismatchLabelKeys", ()), term.get("labelSelector"), path, errs
    )
    key = term.get("topologyKey", "")
    if not key:
        errs.append(required(f"{path}.topologyKey", "can not be empty"))
    validate_label_name(key, f"{path}.topologyKey", errs)


def validate_match_label_keys(
    match: Sequence[str], mismatch: Sequence[str], selector: Item | None, path: str, errs: Errors
) -> None:
    """Validate keys whose values come from the pod itself; they have been merged into the selector already."""
    for name, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if not keys:
            continue
        if selector is None:
            errs.append(forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set"))
            continue
        for i, key in enumerate(keys):
            validate_label_name(key, f"{path}.{name}[{i}]", errs)
    if not match:
        return
    if selector is not None:
        positions = {key: i for i, key in enumerate(match)}
        seen = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions", ()):
            key = expression.get("key", "")
            if key in positions and key in seen:
                text = "exists in both matchLabelKeys and labelSelector"
                errs.append(invalid(f"{path}[{positions[key]}]", key, text))
            seen.add(key)
    for i, key in enumerate(match):
        if key in mismatch:
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            errs.append(invalid(f"{path}.matchLabelKeys[{i}]", key, text))


# -- node selectors ---------------------------------------------------------------------------------------------------


def validate_node_selector(selector: Item, path: str, errs: Errors, *, allow_invalid_values: bool = False) -> None:
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        errs.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
        return
    for i, term in enumerate(terms):
        validate_node_selector_term(
            term, f"{path}.nodeSelectorTerms[{i}]", errs, allow_invalid_values=allow_invalid_values
        )


def validate_node_selector_term(term: Item, path: str, errs: Errors, *, allow_invalid_values: bool = False) -> None:
    for i, requirement in enumerate(term.get("matchExpressions", ())):
        _validate_requirement(requirement, f"{path}.matchExpressions[{i}]", errs, allow_invalid_values)
    for i, requirement in enumerate(term.get("matchFields", ())):
        _validate_field_requirement(requirement, f"{path}.matchFields[{i}]", errs)


def _validate_requirement(requirement: Item, path: str, errs: Errors, loose: bool) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values", ())
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errs.append(forbidden(f"{path}.values", text))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errs.append(required(f"{path}.values", text))
    else:
        errs.append(invalid(f"{path}.operator", operator, _BAD_OPERATOR))
    validate_label_name(requirement.get("key", ""), f"{path}.key", errs)
    if not loose:
        for i, value in enumerate(values):
            for text in label_value(value):
                errs.append(invalid(f"{path}.values[{i}]", value, text))


def _validate_field_requirement(requirement: Item, path: str, errs: Errors) -> None:
    operator, values, key = requirement.get("operator", ""), requirement.get("values", ()), requirement.get("key", "")
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            errs.append(required(f"{path}.values", text))
    else:
        errs.append(invalid(f"{path}.operator", operator, _BAD_OPERATOR))
    if key != "metadata.name":
        errs.append(invalid(f"{path}.key", key, "not a valid field selector key"))
    else:
        for i, value in enumerate(values):
            for text in dns1123_subdomain(value):
                errs.append(invalid(f"{path}.values[{i}]", value, text))
