"""The spec of a Job, also as the template of a CronJob: defaults, rules, warnings."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.batch.completion_policies import (
    shown_success_policy,
    validate_failure_policy,
    validate_success_policy,
)  # fmt: skip
from setpoint.kinds.core.podspec import PodOptions, pod_template_warnings, validate_pod_template
from setpoint.kinds.networking.references import validate_domain_prefixed_path
from setpoint.kinds.numbers import non_negative_fields
from setpoint.meta.field import Errors, invalid, not_supported, required, too_long

_COUNTS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
    "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_MANY = 100_000
"""Number of completions above which the text of completed indexes has tighter limits."""
_MANY_LIMIT = 10_000
_WITH_MANY = (
    f"must be less than or equal to {_MANY_LIMIT} when completions are above {_MANY} "
    "and used with backoff limit per index"
)
_NEEDS_INDEXES = "requires indexed completion mode"


def default_failure_policy(spec: dict[str, Any]) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def drop_disabled_fields(spec: dict[str, Any], old: dict[str, Any] | None = None) -> None:
    """Drop the fields for scheduling Jobs as workloads, a disabled feature."""
    if not (old or {}).get("scheduling"):
        spec.pop("scheduling", None)


def validate_job_spec(spec: dict[str, Any], path: str, errs: Errors, *, options: PodOptions) -> None:
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
        validate_failure_policy(spec, f"{path}.podFailurePolicy", errs)
    success = spec.get("successPolicy")
    if success is not None:
        if spec.get("completionMode") != "Indexed":
            errs.append(invalid(f"{path}.successPolicy", shown_success_policy(success), _NEEDS_INDEXES))
        else:
            validate_success_policy(spec, f"{path}.successPolicy", errs)
    _validate_replacement(spec, f"{path}.podReplacementPolicy", errs)
    template = spec.get("template") or {}
    validate_pod_template(template, f"{path}.template", errs, options=options)
    _validate_restarts(spec, template, f"{path}.template.spec.restartPolicy", errs)


def _validate_mode(spec: dict[str, Any], path: str, errs: Errors) -> None:
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errs.append(not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        _validate_indexed(spec, path, errs)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                errs.append(invalid(f"{path}.{name}", spec[name], _NEEDS_INDEXES))


def _validate_indexed(spec: dict[str, Any], path: str, errs: Errors) -> None:
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


def _validate_replacement(spec: dict[str, Any], path: str, errs: Errors) -> None:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    if policy not in allowed:
        errs.append(not_supported(path, policy, allowed))


def _validate_restarts(spec: dict[str, Any], template: dict[str, Any], path: str, errs: Errors) -> None:
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        errs.append(required(path, 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errs.append(not_supported(path, policy, ("OnFailure", "Never")))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        errs.append(invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified'))


def job_warnings(spec: dict[str, Any], path: str, old: dict[str, Any] | None = None) -> list[str]:
    warnings = []
    if spec.get("completionMode") == "Indexed":
        if (spec.get("completions") or 0) > _MANY and (spec.get("parallelism") or 0) > _MANY_LIMIT:
            warnings.append(
                f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
                "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
            )
    before = None if old is None else old.get("template") or {}
    return warnings + pod_template_warnings(spec.get("template") or {}, f"{path}.template", before)
