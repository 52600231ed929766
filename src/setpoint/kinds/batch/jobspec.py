"""The spec of a Job, also as the template of a CronJob: defaults, rules, failure and success policies, warnings."""

from __future__ import annotations

from itertools import pairwise

from setpoint.kinds.core.podspec import PodOptions, pod_template_warnings, validate_pod_template
from setpoint.kinds.numbers import non_negative, non_negative_fields
from setpoint.kinds.shared_names import validate_domain_prefixed_path
from setpoint.meta.field import (
    OMIT,
    Errors,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from setpoint.meta.goformat import parse_integer, quote
from setpoint.meta.names import qualified_name
from setpoint.meta.objects import Obj

_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_MAX_INDEXES_TEXT = 64 * 1024


def _choices(names: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(quote(name) for name in names) + "]"


def _validate_failure_policy(spec: Obj, path: str, errs: Errors) -> None:
    rules = spec["podFailurePolicy"].get("rules") or []
    if len(rules) > 20:
        errs.append(too_many(f"{path}.rules", len(rules), 20))
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {
        container.get("name", "") for kind in ("containers", "initContainers") for container in pod.get(kind) or ()
    }
    for i, rule in enumerate(rules):
        _validate_failure_rule(spec, rule, f"{path}.rules[{i}]", containers, errs)


def _validate_failure_rule(spec: Obj, rule: Obj, path: str, containers: set[str], errs: Errors) -> None:
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


def _validate_conditions(patterns: list[Obj], path: str, errs: Errors) -> None:
    if len(patterns) > 20:
        errs.append(too_many(path, len(patterns), 20))
    for i, pattern in enumerate(patterns):
        kind, status = pattern.get("type", ""), pattern.get("status", "")
        errs.extend(invalid(f"{path}[{i}].type", kind, text) for text in qualified_name(kind))
        if not status:
            errs.append(required(f"{path}[{i}].status", _choices(_STATUSES)))
        elif status not in _STATUSES:
            errs.append(not_supported(f"{path}[{i}].status", status, _STATUSES))


def _validate_exit_codes(codes: Obj, path: str, containers: set[str], errs: Errors) -> None:
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


def _validate_success_policy(spec: Obj, path: str, errs: Errors) -> None:
    rules = spec["successPolicy"].get("rules") or []
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        errs.append(required(f"{path}.rules", text))
    if len(rules) > 20:
        errs.append(too_many(f"{path}.rules", len(rules), 20))
    completions = spec.get("completions") or 0
    for i, rule in enumerate(rules):
        _validate_success_rule(rule, completions, f"{path}.rules[{i}]", errs)


def _validate_success_rule(rule: Obj, completions: int, path: str, errs: Errors) -> None:
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


def shown_success_policy(policy: Obj | None) -> Obj | None:
    """Return the policy as messages show it."""
    if policy is None:
        return None
    rules = [
        {"SucceededIndexes": rule.get("succeededIndexes"), "SucceededCount": rule.get("succeededCount")}
        for rule in policy.get("rules") or ()
    ]
    return {"Rules": rules or None}


def shown_failure_policy(policy: Obj | None) -> Obj | None:
    if policy is None:
        return None
    return {"Rules": [_shown_rule(rule) for rule in policy.get("rules") or ()] or None}


def _shown_rule(rule: Obj) -> Obj:
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    return {
        "Action": rule.get("action", ""),
        "OnExitCodes": None
        if codes is None
        else {
            "ContainerName": codes.get("containerName"),
            "Operator": codes.get("operator", ""),
            "Values": codes.get("values"),
        },
        "OnPodConditions": [
            {"Type": pattern.get("type", ""), "Status": pattern.get("status", "")} for pattern in conditions
        ]
        if conditions
        else None,
    }


_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MANY = 100_000
"""Number of completions above which the text of completed indexes has tighter limits."""
_MANY_LIMIT = 10_000
_WITH_MANY = (
    f"must be less than or equal to {_MANY_LIMIT} when completions are above {_MANY} "
    "and used with backoff limit per index"
)
_NEEDS_INDEXES = "requires indexed completion mode"


def default_failure_policy(spec: Obj) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def drop_disabled_fields(spec: Obj, old: Obj | None = None) -> None:
    """Drop the fields for scheduling Jobs as workloads, a disabled feature."""
    if not (old or {}).get("scheduling"):
        spec.pop("scheduling", None)


def validate_job_spec(spec: Obj, path: str, errs: Errors, *, options: PodOptions) -> None:
    """Validate everything but the selector, which templates of Jobs do not have."""
    non_negative_fields(spec, _COUNTS, path, errs)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        errs.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    manager = spec.get("managedBy")
    if manager is not None:
        validate_domain_prefixed_path(manager, f"{path}.managedBy", errs)
        if len(manager.encode()) > 63:
            errs.append(too_long(f"{path}.managedBy", 63))
    _validate_mode(spec, path, errs)
    if spec.get("podFailurePolicy") is not None:
        _validate_failure_policy(spec, f"{path}.podFailurePolicy", errs)
    success = spec.get("successPolicy")
    if success is not None:
        if spec.get("completionMode") != "Indexed":
            errs.append(invalid(f"{path}.successPolicy", shown_success_policy(success), _NEEDS_INDEXES))
        else:
            _validate_success_policy(spec, f"{path}.successPolicy", errs)
    _validate_replacement(spec, f"{path}.podReplacementPolicy", errs)
    template = spec.get("template") or {}
    validate_pod_template(template, f"{path}.template", errs, options=options)
    _validate_restarts(spec, template, f"{path}.template.spec.restartPolicy", errs)


def _validate_mode(spec: Obj, path: str, errs: Errors) -> None:
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errs.append(not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        _validate_indexed(spec, path, errs)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                errs.append(invalid(f"{path}.{name}", spec[name], _NEEDS_INDEXES))


def _validate_indexed(spec: Obj, path: str, errs: Errors) -> None:
    completions, parallelism, failed = spec.get("completions"), spec.get("parallelism"), spec.get("maxFailedIndexes")
    if completions is None:
        errs.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism is not None and parallelism > _MANY:
        text = f"must be less than or equal to {_MANY} when completion mode is Indexed"
        errs.append(invalid(f"{path}.parallelism", parallelism, text))
    if completions is not None and failed is not None and failed > completions:
        errs.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if failed is not None and failed > _MANY:
        errs.append(invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MANY}"))
    if completions is not None and completions > _MANY and spec.get("backoffLimitPerIndex") is not None:
        if failed is None:
            errs.append(required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY}"))
        if parallelism is not None and parallelism > _MANY_LIMIT:
            errs.append(invalid(f"{path}.parallelism", parallelism, _WITH_MANY))
        if failed is not None and failed > _MANY_LIMIT:
            errs.append(invalid(f"{path}.maxFailedIndexes", failed, _WITH_MANY))


def _validate_replacement(spec: Obj, path: str, errs: Errors) -> None:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    if policy not in allowed:
        errs.append(not_supported(path, policy, allowed))


def _validate_restarts(spec: Obj, template: Obj, path: str, errs: Errors) -> None:
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        errs.append(required(path, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errs.append(not_supported(path, policy, ("OnFailure", "Never")))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        errs.append(invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified'))


def job_warnings(spec: Obj, path: str) -> list[str]:
    warnings = []
    if spec.get("completionMode") == "Indexed":
        if (spec.get("completions") or 0) > _MANY and (spec.get("parallelism") or 0) > _MANY_LIMIT:
            warnings.append(
                f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
                "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
            )
    return warnings + pod_template_warnings(spec.get("template"), f"{path}.template")
