"""Constraints on the node of a pod: affinity, topology spread, tolerations. Node selector terms serve volumes too."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.kinds.internal_form import as_json
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required
from setpoint.meta.goformat import parse_integer, quote
from setpoint.meta.names import _label_value, _qualified_name, dns1123_label, dns1123_subdomain, label_value
from setpoint.meta.objectmeta import validate_label_name, validate_label_selector
from setpoint.meta.objects import Obj, ObjView

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_BAD_OPERATOR = "not a valid selector operator"


def validate_affinity(affinity: ObjView, path: str, errs: Errors, *, options: PodOptions) -> None:
    node = affinity.get("nodeAffinity")
    if node is not None:
        at = f"{path}.nodeAffinity"
        if REQUIRED in node:
            loose = options.allow_invalid_node_affinity_values
            validate_node_selector(node[REQUIRED], f"{at}.{REQUIRED}", errs, allow_invalid_values=loose)
        for i, term in enumerate(node.get(PREFERRED, ())):
            _validate_weight(term, f"{at}.{PREFERRED}[{i}]", errs)
            # Upstream never validates the values of preferences.
            preference = term.get("preference") or {}
            _validate_node_selector_term(
                preference, f"{at}.{PREFERRED}[{i}].preference", errs, allow_invalid_values=True
            )
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind)
        if terms is not None:
            _validate_pod_affinity(terms, f"{path}.{kind}", errs, options.allow_invalid_selector_values)


def _validate_weight(term: ObjView, path: str, errs: Errors) -> None:
    weight = term.get("weight", 0)
    if not 0 < weight <= 100:
        errs.append(invalid(f"{path}.weight", weight, "must be in the range 1-100"))


def _validate_pod_affinity(affinity: ObjView, path: str, errs: Errors, loose: bool) -> None:
    for i, term in enumerate(affinity.get(REQUIRED, ())):
        _validate_pod_affinity_term(term, f"{path}.{REQUIRED}[{i}]", errs, loose)
    for i, weighted in enumerate(affinity.get(PREFERRED, ())):
        at = f"{path}.{PREFERRED}[{i}]"
        _validate_weight(weighted, at, errs)
        _validate_pod_affinity_term(weighted.get("podAffinityTerm") or {}, f"{at}.podAffinityTerm", errs, loose)


def _validate_pod_affinity_term(term: ObjView, path: str, errs: Errors, loose: bool) -> None:
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
    match: Sequence[str], mismatch: Sequence[str], selector: ObjView | None, path: str, errs: Errors
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


def validate_node_selector(selector: ObjView, path: str, errs: Errors, *, allow_invalid_values: bool = False) -> None:
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        errs.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
        return
    for i, term in enumerate(terms):
        _validate_node_selector_term(
            term, f"{path}.nodeSelectorTerms[{i}]", errs, allow_invalid_values=allow_invalid_values
        )


def _validate_node_selector_term(term: ObjView, path: str, errs: Errors, *, allow_invalid_values: bool = False) -> None:
    for i, requirement in enumerate(term.get("matchExpressions", ())):
        _validate_requirement(requirement, f"{path}.matchExpressions[{i}]", errs, allow_invalid_values)
    for i, requirement in enumerate(term.get("matchFields", ())):
        _validate_field_requirement(requirement, f"{path}.matchFields[{i}]", errs)


def _validate_requirement(requirement: ObjView, path: str, errs: Errors, loose: bool) -> None:
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


def _validate_field_requirement(requirement: ObjView, path: str, errs: Errors) -> None:
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


NOT_POSITIVE = "must be greater than zero"
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")


def validate_topology_spread(constraints: Sequence[ObjView], path: str, errs: Errors, *, options: PodOptions) -> None:
    for i, constraint in enumerate(constraints):
        at = f"{path}[{i}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        action = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            errs.append(invalid(f"{at}.maxSkew", skew, NOT_POSITIVE))
        if not key:
            errs.append(required(f"{at}.topologyKey", "can not be empty"))
        if action not in _ACTIONS:
            errs.append(not_supported(f"{at}.whenUnsatisfiable", action, _ACTIONS))
        if any(
            other.get("topologyKey", "") == key and other.get("whenUnsatisfiable", "") == action
            for other in constraints[i + 1 :]
        ):
            errs.append(duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                errs.append(invalid(f"{at}.minDomains", domains, NOT_POSITIVE))
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errs.append(invalid(f"{at}.minDomains", domains, text))
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = constraint.get(name)
            if policy is not None and policy not in _POLICIES:
                errs.append(not_supported(f"{at}.{name}", as_json(policy), _POLICIES))
        keys, selector = constraint.get("matchLabelKeys", ()), constraint.get("labelSelector")
        if options.allow_invalid_match_label_keys:
            _validate_unmerged_keys(keys, selector, f"{at}.matchLabelKeys", errs)
        else:
            validate_match_label_keys(keys, (), selector, at, errs)
        if not options.allow_invalid_spread_selector:
            validate_label_selector(selector, f"{at}.labelSelector", errs)


def _validate_unmerged_keys(keys: Sequence[str], selector: ObjView | None, path: str, errs: Errors) -> None:
    """Validate stored objects whose keys were never merged into the selector, by the older rule."""
    if not keys:
        return
    selector_keys: set[str] = set()
    if selector is None:
        errs.append(forbidden(path, "must not be specified when labelSelector is not set"))
    else:
        selector_keys.update(selector.get("matchLabels") or ())
        selector_keys.update(expression.get("key", "") for expression in selector.get("matchExpressions", ()))
    for i, key in enumerate(keys):
        validate_label_name(key, f"{path}[{i}]", errs)
        if key in selector_keys:
            errs.append(invalid(f"{path}[{i}]", key, "exists in both matchLabelKeys and labelSelector"))


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_INT64 = range(-(2**63), 2**63)


def validate_tolerations(
    tolerations: Sequence[ObjView], path: str, errs: Errors, *, allow_comparison: bool = False
) -> None:
    for i, toleration in enumerate(tolerations):
        get = toleration.get
        key, operator, value, effect = get("key", ""), get("operator", ""), get("value", ""), get("effect", "")
        if key:
            for text in _qualified_name(key):
                errs.append(invalid(f"{path}[{i}].key", key, text))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errs.append(invalid(f"{path}[{i}].operator", operator, text))
        if effect != "NoExecute" and "tolerationSeconds" in toleration:
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(invalid(f"{path}[{i}].effect", effect, text))
        if operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                errs.append(invalid(f"{path}[{i}].operator", value, text))
        elif operator in ("Equal", ""):
            texts = _label_value(value)
            if texts:
                errs.append(invalid(f"{path}[{i}].operator", value, ";".join(texts)))
        elif operator not in ("Lt", "Gt"):
            errs.append(not_supported(f"{path}[{i}].operator", operator, ("Equal", "Exists")))
        elif not allow_comparison:
            errs.append(not_supported(f"{path}[{i}].operator", operator, ("Equal", "Exists", "Lt", "Gt")))
        else:
            _validate_number(value, f"{path}[{i}].value", errs)
        if effect and effect not in EFFECTS:
            errs.append(not_supported(f"{path}[{i}].effect", effect, EFFECTS))


def _validate_number(value: str, path: str, errs: Errors) -> None:
    digits = value[1:] if value[:1] == "-" else value
    plain = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and value != "-0"
    if not plain:
        text = "must be a valid decimal integer in canonical form"
        errs.append(invalid(path, value, text))
    unsigned = value[1:] if value[:1] in ("-", "+") else value
    if not (unsigned.isascii() and unsigned.isdigit()):
        errs.append(invalid(path, value, f"strconv.ParseInt: parsing {quote(value)}: invalid syntax"))
    elif parse_integer(value) not in _INT64:
        errs.append(invalid(path, value, f"strconv.ParseInt: parsing {quote(value)}: value out of range"))


def validate_only_added_tolerations(
    new: Sequence[ObjView], old: Sequence[ObjView], path: str, errs: Errors, *, allow_comparison: bool = False
) -> None:
    """Validate that stored tolerations stay; only tolerationSeconds may change."""

    def timeless(toleration: ObjView) -> Obj:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [timeless(toleration) for toleration in new]
    if any(timeless(toleration) not in kept for toleration in old):
        errs.append(forbidden(path, "existing toleration can not be modified except its tolerationSeconds"))
        return
    validate_tolerations(new, path, errs, allow_comparison=allow_comparison)
