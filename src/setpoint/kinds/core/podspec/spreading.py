"""Topology spread constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.kinds.core.podspec.affinity import validate_match_label_keys
from setpoint.kinds.core.podspec.internal import as_json
from setpoint.kinds.core.podspec.options import PodOptions
from setpoint.meta.field import Errors, duplicate, forbidden, invalid, not_supported, required
from setpoint.meta.objectmeta import validate_label_name, validate_label_selector

Item = Mapping[str, Any]
NOT_POSITIVE = "must be greater than zero"
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")


def validate_topology_spread(constraints: Sequence[Item], path: str, errs: Errors, *, options: PodOptions) -> None:
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


def _validate_unmerged_keys(keys: Sequence[str], selector: Item | None, path: str, errs: Errors) -> None:
    """Validate stored objects whose keys were never merged into the selector, by the older rule."""
    if not keys:
        return
    taken: set[str] = set()
    if selector is None:
        errs.append(forbidden(path, "must not be specified when labelSelector is not set"))
    else:
        taken.update(selector.get("matchLabels") or ())
        taken.update(expression.get("key", "") for expression in selector.get("matchExpressions", ()))
    for i, key in enumerate(keys):
        validate_label_name(key, f"{path}[{i}]", errs)
        if key in taken:
            errs.append(invalid(f"{path}[{i}]", key, "exists in both matchLabelKeys and labelSelector"))
