"""Failure and completion of a Job: its failure policy, success policy, and index lists."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from setpoint.kinds.numbers import non_negative
from setpoint.meta.field import OMIT, Errors, duplicate, invalid, not_supported, required, too_long, too_many
from setpoint.meta.goformat import quote
from setpoint.meta.integers import parse_integer
from setpoint.meta.names import qualified_name

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_MAX_INDEXES_TEXT = 64 * 1024


def _choices(names: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(quote(name) for name in names) + "]"


def validate_failure_policy(spec: dict[str, Any], path: str, errs: Errors) -> None:
    rules = spec["podFailurePolicy"].get("rules") or []
    if len(rules) > 20:
        errs.append(too_many(f"{path}.rules", len(rules), 20))
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {
        container.get("name", "") for kind in ("containers", "initContainers") for container in pod.get(kind) or ()
    }
    for i, rule in enumerate(rules):
        _validate_failure_rule(spec, rule, f"{path}.rules[{i}]", containers, errs)


def _validate_failure_rule(
    spec: dict[str, Any], rule: dict[str, Any], path: str, containers: set[str], errs: Errors
) -> None:
    action, codes, conditions = rule.get("action", ""), rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if not action:
        errs.append(required(f"{path}.action", _choices(_ACTIONS)))
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            errs.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in _ACTIONS:
        errs.append(not_supported(f"{path}.action", action, _ACTIONS))
    if codes is not None:
        _validate_exit_codes(codes, f"{path}.onExitCodes", containers, errs)
    if conditions:
        _validate_conditions(conditions, f"{path}.onPodConditions", errs)
    if codes is not None and conditions:
        errs.append(invalid(path, OMIT, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        errs.append(invalid(path, OMIT, "specifying one of OnExitCodes and OnPodConditions is required"))


def _validate_conditions(patterns: list[dict[str, Any]], path: str, errs: Errors) -> None:
    if len(patterns) > 20:
        errs.append(too_many(path, len(patterns), 20))
    for i, pattern in enumerate(patterns):
        kind, status = pattern.get("type", ""), pattern.get("status", "")
        errs.extend(invalid(f"{path}[{i}].type", kind, text) for text in qualified_name(kind))
        if not status:
            errs.append(required(f"{path}[{i}].status", _choices(_STATUSES)))
        elif status not in _STATUSES:
            errs.append(not_supported(f"{path}[{i}].status", status, _STATUSES))


def _validate_exit_codes(codes: dict[str, Any], path: str, containers: set[str], errs: Errors) -> None:
    operator, container, values = codes.get("operator", ""), codes.get("containerName"), codes.get("values") or []
    if not operator:
        errs.append(required(f"{path}.operator", _choices(_OPERATORS)))
    elif operator not in _OPERATORS:
        errs.append(not_supported(f"{path}.operator", operator, _OPERATORS))
    if container is not None and container not in containers:
        text = "must be one of the container or initContainer names in the pod template"
        errs.append(invalid(f"{path}.containerName", container, text))
    if not values:
        errs.append(invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > 255:
        errs.append(too_many(f"{path}.values", len(values), 255))
    seen: set[int] = set()
    for i, value in enumerate(values):
        if operator == "In" and value == 0:
            errs.append(invalid(f"{path}.values[{i}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errs.append(duplicate(f"{path}.values[{i}]", value))
        seen.add(value)
    if any(left > right for left, right in pairwise(values)):
        errs.append(invalid(f"{path}.values", values, "must be ordered"))


def validate_success_policy(spec: dict[str, Any], path: str, errs: Errors) -> None:
    rules = spec["successPolicy"].get("rules") or []
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        errs.append(required(f"{path}.rules", text))
    if len(rules) > 20:
        errs.append(too_many(f"{path}.rules", len(rules), 20))
    completions = spec.get("completions") or 0
    for i, rule in enumerate(rules):
        _validate_success_rule(rule, completions, f"{path}.rules[{i}]", errs)


def _validate_success_rule(rule: dict[str, Any], completions: int, path: str, errs: Errors) -> None:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        errs.append(required(path, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if indexes is not None:
        at = f"{path}.succeededIndexes"
        if len(indexes.encode()) > _MAX_INDEXES_TEXT:
            errs.append(too_long(at, _MAX_INDEXES_TEXT))
        try:
            total = count_indexes(indexes, completions)
        except ValueError as error:
            errs.append(invalid(at, indexes, f"error parsing succeededIndexes: {error}"))
    if count is not None:
        at = f"{path}.succeededCount"
        non_negative(count, at, errs)
        if count > completions:
            text = f"must be less than or equal to {completions} (the number of specified completions)"
            errs.append(invalid(at, count, text))
        if indexes is not None and count > total:
            text = (
                f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            )
            errs.append(invalid(at, count, text))


def count_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in `1,3-5,7`. Raises ValueError if they do not ascend or exceed the completions."""
    if not text:
        return 0
    total, last = 0, -1
    first = True
    for part in text.split(","):
        low, high = _interval(part, completions)
        if not first and last >= low:
            raise ValueError(f"non-increasing order, previous: {last}, current: {low}")
        first = False
        total += high - low + 1
        last = high
    return total


def overlapping_index(completed: str, failed: str, completions: int) -> int | None:
    """Return the first index that both lists name; parts that cannot be read are passed over."""
    left, right = _intervals(completed, completions), _intervals(failed, completions)
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i][0] <= right[j][1] and right[j][0] <= left[i][1]:
            return max(left[i][0], right[j][0])
        if left[i][0] <= right[j][0]:
            i += 1
        else:
            j += 1
    return None


def _intervals(text: str, completions: int) -> list[tuple[int, int]]:
    found = []
    for part in text.split(",") if text else ():
        try:
            found.append(_interval(part, completions))
        except ValueError:
            continue
    return found


def _interval(text: str, completions: int) -> tuple[int, int]:
    limits = text.split("-")
    if len(limits) > 2:
        raise ValueError(
            f"the fragment {quote(text)} violates the requirement that an index interval can have at most two parts "
            "separated by '-'"
        )
    low = _index(limits[0], completions)
    if len(limits) == 1:
        return low, low
    high = _index(limits[1], completions)
    if low >= high:
        raise ValueError(f"non-increasing order, previous: {low}, current: {high}")
    return low, high


def _index(text: str, completions: int) -> int:
    digits = text[1:] if text[:1] == "+" else text
    if not (digits.isascii() and digits.isdigit()) or parse_integer(digits) >= 2**63:
        raise ValueError(f"cannot convert string to integer for index: {quote(text)}")
    if parse_integer(digits) >= completions:
        raise ValueError(f"too large index: {quote(text)}")
    return parse_integer(digits)


def shown_success_policy(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the policy as messages show it."""
    if policy is None:
        return None
    rules = [
        {"SucceededIndexes": rule.get("succeededIndexes"), "SucceededCount": rule.get("succeededCount")}
        for rule in policy.get("rules") or ()
    ]
    return {"Rules": rules or None}


def shown_failure_policy(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    if policy is None:
        return None
    return {"Rules": [_shown_rule(rule) for rule in policy.get("rules") or ()] or None}


def _shown_rule(rule: dict[str, Any]) -> dict[str, Any]:
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    return {
        "Action": rule.get("action", ""),
        "OnExitCodes": None if codes is None else {
            "ContainerName": codes.get("containerName"), "Operator": codes.get("operator", ""),
            "Values": codes.get("values"),
        },
        "OnPodConditions": [
            {"Type": pattern.get("type", ""), "Status": pattern.get("status", "")} for pattern in conditions
        ] if conditions else None,
    }  # fmt: skip
