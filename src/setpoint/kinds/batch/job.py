"""Job: Pods that run until enough of them have succeeded."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apps.podtemplate import MISMATCH, name_warning, usable_selector
from setpoint.kinds.batch.completion_policies import shown_failure_policy, shown_success_policy
from setpoint.kinds.batch.job_columns import COLUMNS
from setpoint.kinds.batch.job_status import JobStatusStrategy, condition_is
from setpoint.kinds.batch.job_template_update import validate_template_update
from setpoint.kinds.batch.jobspec import (
    default_failure_policy,
    drop_disabled_fields,
    job_warnings,
    validate_job_spec,
)  # fmt: skip
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
)  # fmt: skip
from setpoint.kinds.strategy import Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import IMMUTABLE, validate_immutable, validate_label_selector

UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
_OLD_UID_LABEL = "controller-uid"
_OLD_NAME_LABEL = "job-name"
_GENERATED_LABELS = {UID_LABEL, NAME_LABEL, _OLD_UID_LABEL, _OLD_NAME_LABEL}


class JobStrategy(Strategy):
    has_status = True
    has_generation = True
    orphans_by_default = True
    field_labels = frozenset({"metadata.name", "metadata.namespace", "status.successful"})
    columns = COLUMNS

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("parallelism") is None:
            if spec.get("completions") is None:
                spec["completions"] = 1
            spec["parallelism"] = 1
        if spec.get("backoffLimit") is None:
            spec["backoffLimit"] = 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1
        template = spec.setdefault("template", {})
        labels = (template.get("metadata") or {}).get("labels")
        meta = obj.setdefault("metadata", {})
        if labels and not meta.get("labels"):
            # The map is shared on purpose: labels added to the template's also become the Job's.
            meta["labels"] = labels
        if spec.get("completionMode") is None:
            spec["completionMode"] = "NonIndexed"
        if spec.get("suspend") is None:
            spec["suspend"] = False
        if spec.get("podReplacementPolicy") is None:
            has_policy = spec.get("podFailurePolicy") is not None
            spec["podReplacementPolicy"] = "Failed" if has_policy else "TerminatingOrFailed"
        if spec.get("manualSelector") is None:
            spec["manualSelector"] = False
        default_failure_policy(spec)
        default_pod_template(template)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        if not obj["spec"].get("manualSelector"):
            _generate_selector(obj)
        self.reset_status(obj)
        drop_disabled_fields(obj["spec"])
        drop_disabled_template_fields(obj["spec"]["template"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled_fields(obj["spec"], old["spec"])
        drop_disabled_template_fields(obj["spec"]["template"], old["spec"].get("template"))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_generated_selector(obj, errs)
        _validate_spec(obj["spec"], errs, CREATE, False)
        _validate_name(obj, errs)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, before = obj["spec"], old["spec"]
        already: Errors = []
        validate_label_selector(before.get("selector"), "", already)
        _validate_spec(spec, errs, pod_template_options(before.get("template")), bool(already))
        _validate_completions(spec, before, errs)
        validate_immutable(spec.get("selector"), before.get("selector"), "spec.selector", errs)
        validate_template_update(spec, before, errs, mutable=_template_is_mutable(old))
        validate_immutable(spec.get("completionMode"), before.get("completionMode"), "spec.completionMode", errs)
        if spec.get("podFailurePolicy") != before.get("podFailurePolicy"):
            errs.append(invalid("spec.podFailurePolicy", shown_failure_policy(spec.get("podFailurePolicy")), IMMUTABLE))
        for name in ("backoffLimitPerIndex", "managedBy"):
            validate_immutable(spec.get(name), before.get(name), f"spec.{name}", errs)
        if spec.get("successPolicy") != before.get("successPolicy"):
            errs.append(invalid("spec.successPolicy", shown_success_policy(spec.get("successPolicy")), IMMUTABLE))
        _validate_name(obj, errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return name_warning(obj["metadata"]["name"]) + job_warnings(obj["spec"], "spec")

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        return [] if obj["spec"] == old["spec"] else job_warnings(obj["spec"], "spec", old["spec"])

    def warnings_on_delete(self, policy_given: bool) -> list[str]:
        if policy_given:
            return []
        return [
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
            "them or set propagationPolicy=Orphan to suppress this warning"
        ]

    def writes_after_create(self, obj: Obj) -> bool:
        """Return whether the Job was created without labels: upstream fills in its template's labels on every read."""
        labels = obj["metadata"].get("labels")
        template = (obj["spec"].get("template") or {}).get("metadata") or {}
        return bool(labels) and labels == template.get("labels") and labels.keys() <= _GENERATED_LABELS

    def unsupported_field(self, label: str) -> str | None:
        return f"field label {quote(label)} not supported for Job"

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}


def _generate_selector(obj: Obj) -> None:
    """Select Pods by the Job's uid, which the Pods of no other controller have."""
    meta, spec = obj["metadata"], obj["spec"]
    pod_meta = spec["template"].setdefault("metadata", {})
    labels = pod_meta.get("labels") or {}
    shared = not meta.get("labels") or meta["labels"] is pod_meta.get("labels")
    uid, name = meta.get("uid", ""), meta.get("name", "")
    generated = {_OLD_NAME_LABEL: name, NAME_LABEL: name, _OLD_UID_LABEL: uid, UID_LABEL: uid}
    pod_meta["labels"] = dict(sorted({**generated, **labels}.items()))
    if shared:
        meta["labels"] = dict(pod_meta["labels"])
    selector = spec.get("selector") or {}
    match = {UID_LABEL: uid, **(selector.get("matchLabels") or {})}
    spec["selector"] = {"matchLabels": dict(sorted(match.items())), **_without_labels(selector)}


def _without_labels(selector: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in selector.items() if name != "matchLabels"}


def _validate_generated_selector(obj: Obj, errs: Errors) -> None:
    meta, spec = obj["metadata"], obj["spec"]
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    uid, name = meta.get("uid", ""), meta.get("name", "")
    if not uid:
        errs.append(required("metadata.uid"))
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    expected = {_OLD_UID_LABEL: uid, _OLD_NAME_LABEL: name, UID_LABEL: uid, NAME_LABEL: name}
    for key, value in expected.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            errs.append(required(path, f"must be '{value}'"))
        elif labels[key] != value:
            errs.append(invalid(path, labels, f"must be '{value}'"))
    selector = usable_selector(spec["selector"])
    if selector is not None and not selector.matches(expected):
        errs.append(invalid("spec.selector", spec["selector"], "`selector` not auto-generated"))


def _validate_spec(spec: dict[str, Any], errs: Errors, options: PodOptions, allow_invalid_values: bool) -> None:
    validate_job_spec(spec, "spec", errs, options=options)
    declared = spec.get("selector")
    if declared is None:
        errs.append(required("spec.selector"))
    else:
        validate_label_selector(declared, "spec.selector", errs, allow_invalid_values=allow_invalid_values)
    selector = usable_selector(declared)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if selector is not None and not selector.matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", labels, MISMATCH))


def _validate_name(obj: Obj, errs: Errors) -> None:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        hostname = f"{name}-{completions - 1}"
        if dns1123_label(hostname):
            text = f"will not able to create pod with invalid DNS label: {hostname}"
            errs.append(invalid("metadata.name", name, text))


def _validate_completions(spec: dict[str, Any], old: dict[str, Any], errs: Errors) -> None:
    completions, before = spec.get("completions"), old.get("completions")
    if spec.get("completionMode") != "Indexed":
        validate_immutable(completions, before, "spec.completions", errs)
    elif completions is not None and completions != before and completions != spec.get("parallelism"):
        errs.append(invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism"))


def _template_is_mutable(old: Obj) -> bool:
    """Return whether the scheduling fields of the template may change: in a suspended Job without Pods."""
    status = old.get("status") or {}
    idle = status.get("startTime") is None or condition_is(status, "Suspended", "True")
    return bool(old["spec"].get("suspend")) and idle and not status.get("active")


STRATEGY = JobStrategy()
STRATEGY.subresources = {"status": JobStatusStrategy(STRATEGY)}
