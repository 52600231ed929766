"""Job: Pods that run until enough of them have succeeded."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.kinds.apps.workload import (
    CONTAINERS,
    IMAGES,
    SELECTOR,
    WorkloadStrategy,
    name_warning,
    usable_selector,
    validate_labels_match,
)
from setpoint.kinds.batch.jobspec import (
    count_indexes,
    default_failure_policy,
    drop_disabled_fields,
    job_warnings,
    overlapping_index,
    shown_failure_policy,
    shown_success_policy,
    validate_job_spec,
)
from setpoint.kinds.cell_texts import since
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import CREATE, PodOptions, default_pod_template, pod_template_options
from setpoint.kinds.internal_form import internal
from setpoint.kinds.numbers import non_negative_fields
from setpoint.kinds.strategy import Column, Context, StatusStrategy
from setpoint.meta.conditions import is_true
from setpoint.meta.field import OMIT, Errors, duplicate, invalid, required
from setpoint.meta.goformat import quote
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import IMMUTABLE, validate_immutable, validate_label_selector
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import parse_time

_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")
UID_LABEL = "batch.kubernetes.io/controller-uid"
NAME_LABEL = "batch.kubernetes.io/job-name"
_OLD_UID_LABEL = "controller-uid"
_OLD_NAME_LABEL = "job-name"
_GENERATED_LABELS = {UID_LABEL, NAME_LABEL, _OLD_UID_LABEL, _OLD_NAME_LABEL}


def condition_is(status: ObjView, kind: str, value: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == value
        for condition in status.get("conditions") or ()
    )


class JobStatusStrategy(StatusStrategy):
    """The status of a Job. Rules apply to changes only: a status that was stored before a rule existed stays
    writable."""

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        labels = ((obj["spec"].get("template") or {}).get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        change = _Change(obj, old)
        change.validate_counts(errs)
        change.validate_outcome(errs)
        change.validate_indexes(errs)
        change.validate_pods(errs)
        change.validate_criteria(errs)
        change.validate_transition(errs)


class _Change:
    def __init__(self, obj: Obj, old: Obj) -> None:
        self.spec: Obj = obj["spec"]
        self.status: Obj = obj.get("status") or {}
        self.before: Obj = old.get("status") or {}
        self.complete, self.was_complete = (condition_is(s, "Complete", "True") for s in (self.status, self.before))
        self.failed, self.was_failed = (condition_is(s, "Failed", "True") for s in (self.status, self.before))
        self.target, self.was_target = (condition_is(s, "FailureTarget", "True") for s in (self.status, self.before))
        self.met, self.was_met = (condition_is(s, "SuccessCriteriaMet", "True") for s in (self.status, self.before))
        self.finished = self.complete or self.failed
        self.complete_changed = self.complete != self.was_complete
        self.failed_changed = self.failed != self.was_failed
        self.finished_changed = self.finished != (self.was_complete or self.was_failed)

    def changed(self, name: str, empty: Any = None) -> bool:
        return bool(self.status.get(name, empty) != self.before.get(name, empty))

    def validate_counts(self, errs: Errors) -> None:
        non_negative_fields(self.status, ("active", "succeeded", "failed", "ready", "terminating"), "status", errs)
        seen: set[str] = set()
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        for name in ("succeeded", "failed"):
            for i, uid in enumerate(uncounted.get(name) or ()):
                path = f"status.uncountedTerminatedPods.{name}[{i}]"
                if not uid:
                    errs.append(invalid(path, uid, "must not be empty"))
                elif uid in seen:
                    errs.append(duplicate(path, uid))
                seen.add(uid)

    def validate_outcome(self, errs: Errors) -> None:
        status = self.status
        started, completed = status.get("startTime"), status.get("completionTime")
        if (self.complete_changed or self.failed_changed) and self.complete and self.failed:
            errs.append(_conditions("cannot set Complete=True and Failed=true conditions"))
        if (self.complete_changed or self.target != self.was_target) and self.complete and self.target:
            errs.append(_conditions("cannot set Complete=True and FailureTarget=true conditions"))
        if self.complete_changed or self.changed("completionTime"):
            if completed is not None and not self.complete:
                text = "cannot set completionTime when there is no Complete=True condition"
                errs.append(invalid("status.completionTime", completed, text))
            if completed is None and self.complete:
                errs.append(required("status.completionTime", "completionTime is required for Complete jobs"))
        if self.changed("startTime") or self.changed("completionTime"):
            if started is not None and completed is not None and completed < started:
                errs.append(invalid("status.completionTime", completed, "must be equal to or after `startTime`"))
        if (self.failed_changed or self.changed("failedIndexes")) and self.failed and not self.target:
            errs.append(_conditions("cannot set Failed=True condition without the FailureTarget=true condition"))
        if (self.complete_changed or self.met != self.was_met) and self.complete and not self.met:
            errs.append(_conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"))
        active = status.get("active", 0)
        if (self.finished_changed or self.changed("active", 0)) and active > 0 and self.finished:
            errs.append(invalid("status.active", active, "active>0 is invalid for finished job"))
        never_started = self.spec.get("suspend") is True and self.spec.get("completions") == 0
        if (self.finished_changed or self.changed("startTime")) and not never_started:
            if started is None and self.finished:
                errs.append(required("status.startTime", "startTime is required for finished job"))
        uncounted = status.get("uncountedTerminatedPods") or {}
        if self.finished_changed or (uncounted != (self.before.get("uncountedTerminatedPods") or {})):
            if self.finished and (uncounted.get("succeeded") or uncounted.get("failed")):
                shown = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
                errs.append(invalid("status.uncountedTerminatedPods", shown, "must be empty for finished job"))

    def validate_indexes(self, errs: Errors) -> None:
        completed, failed = self.status.get("completedIndexes", ""), self.status.get("failedIndexes")
        completed_changed, failed_changed = self.changed("completedIndexes", ""), self.changed("failedIndexes")
        completions, per_index = self.spec.get("completions"), self.spec.get("backoffLimitPerIndex")
        if completed_changed and completions is not None:
            _validate_format(completed, completions, "completedIndexes", errs)
        if failed_changed and completions is not None and per_index is not None and failed is not None:
            _validate_format(failed, completions, "failedIndexes", errs)
        if completed_changed and completed and self.spec.get("completionMode") != "Indexed":
            text = "cannot set non-empty completedIndexes when non-indexed completion mode"
            errs.append(invalid("status.completedIndexes", completed, text))
        if failed_changed and per_index is None and failed is not None:
            text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
            errs.append(invalid("status.failedIndexes", failed, text))
        if (failed_changed or completed_changed) and completions is not None and failed is not None:
            index = overlapping_index(completed, failed, completions)
            if index is not None:
                text = f"failedIndexes and completedIndexes overlap at index: {index}"
                errs.append(invalid("status.failedIndexes", failed, text))

    def validate_pods(self, errs: Errors) -> None:
        terminating, ready = self.status.get("terminating"), self.status.get("ready")
        if (self.finished_changed or self.changed("terminating")) and (terminating or 0) > 0 and self.finished:
            errs.append(invalid("status.terminating", terminating, "terminating>0 is invalid for finished job"))
        if (self.changed("ready") or self.changed("active", 0)) and ready is not None:
            if ready > self.status.get("active", 0):
                errs.append(invalid("status.ready", ready, "cannot set more ready pods than active"))

    def validate_criteria(self, errs: Errors) -> None:
        if self.met and self.failed:
            errs.append(_conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions"))
        if self.met and self.target:
            errs.append(_conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"))
        if self.spec.get("successPolicy") is not None and not self.met and self.complete:
            text = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
            errs.append(_conditions(text))

    def validate_transition(self, errs: Errors) -> None:
        status, before = self.status, self.before
        for kind, was, is_now in (
            ("Failed", self.was_failed, self.failed),
            ("Complete", self.was_complete, self.complete),
            ("FailureTarget", self.was_target, self.target),
        ):
            if was and not is_now:
                errs.append(_conditions(f"cannot disable the terminal {kind}=True condition"))
        if status.get("failed", 0) < before.get("failed", 0):
            errs.append(invalid("status.failed", status.get("failed", 0), "cannot decrease the failed counter"))
        # An indexed Job that is scaled down forgets the indexes beyond its new size.
        scalable = self.spec.get("completionMode") == "Indexed" and (
            self.spec.get("completions") == self.spec.get("parallelism")
        )
        if not scalable and status.get("succeeded", 0) < before.get("succeeded", 0):
            text = "cannot decrease the succeeded counter"
            errs.append(invalid("status.succeeded", status.get("succeeded", 0), text))
        completed, started = status.get("completionTime"), status.get("startTime")
        if completed is not None and before.get("completionTime") is not None and self.changed("completionTime"):
            errs.append(invalid("status.completionTime", completed, IMMUTABLE))
        resuming = condition_is(before, "Suspended", "True") and condition_is(status, "Suspended", "False")
        if self.changed("startTime") and not resuming:
            if before.get("startTime") is not None and not self.spec.get("suspend"):
                text = "field is immutable for unsuspended job once set"
                errs.append(invalid("status.startTime", started, text))
        if self.was_met and not self.met:
            errs.append(_conditions("cannot disable the SuccessCriteriaMet=True condition"))
        if self.was_complete and not self.was_met and self.met:
            text = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
            errs.append(_conditions(text))


def _conditions(text: str) -> Any:
    return invalid("status.conditions", OMIT, text)


def _validate_format(text: str, completions: int, name: str, errs: Errors) -> None:
    try:
        count_indexes(text, completions)
    except ValueError as error:
        errs.append(invalid(f"status.{name}", text, f"error parsing {name}: {error}"))


def _validate_template_update(spec: Obj, old: Obj, errs: Errors, *, mutable: bool) -> None:
    template, before = spec.get("template") or {}, old.get("template") or {}
    if template == before:
        return
    if not mutable:
        shown = {**(template.get("metadata") or {}), "Spec": internal("PodSpec", template.get("spec"))}
        errs.append(invalid("spec.template", shown, IMMUTABLE))
        return
    pod = template.get("spec") or {}
    if pod != _with_resources_of(pod, _with_directives_of(pod, before.get("spec") or {})):
        errs.append(invalid("spec.template.spec", internal("PodSpec", pod), IMMUTABLE))


def _with_directives_of(pod: Obj, old: Obj) -> Obj:
    result = {name: value for name, value in old.items() if name not in _DIRECTIVES and name != "affinity"}
    result.update((name, pod[name]) for name in _DIRECTIVES if name in pod)
    affinity, before = pod.get("affinity"), old.get("affinity")
    if before is not None or affinity is not None:
        remaining = {name: value for name, value in (before or {}).items() if name != "nodeAffinity"}
        if affinity is not None and "nodeAffinity" in affinity:
            remaining["nodeAffinity"] = affinity["nodeAffinity"]
        if affinity is not None or remaining:
            result["affinity"] = remaining
    return result


def _with_resources_of(pod: Obj, old: Obj) -> Obj:
    result = dict(old)
    for kind in ("containers", "initContainers"):
        containers, before = pod.get(kind) or [], old.get(kind) or []
        if containers and len(containers) == len(before):
            result[kind] = [_with_resources(new, known) for new, known in zip(containers, before)]
    return result


def _with_resources(container: Obj, old: Obj) -> Obj:
    if container.get("name") != old.get("name"):
        return old
    result = {name: value for name, value in old.items() if name != "resources"}
    if "resources" in container:
        result["resources"] = container["resources"]
    return result


def _status(obj: Obj, now: datetime) -> str:
    for kind in ("Complete", "Failed"):
        if is_true(obj, kind):
            return kind
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if is_true(obj, kind):
            return kind
    return "Running"


def _completions(obj: Obj, now: datetime) -> str:
    spec, succeeded = obj.get("spec") or {}, (obj.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _duration(obj: Obj, now: datetime) -> str:
    status = obj.get("status") or {}
    started, completed = status.get("startTime"), status.get("completionTime")
    if not started:
        return ""
    return since(started, parse_time(completed) if completed else now)


COLUMNS = (
    NAME,
    Column("Status", _status, description="State of the Job."),
    Column("Completions", _completions, description="Succeeded Pods of the required number."),
    Column("Duration", _duration, description="Time from the start to the completion, or until now."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
)


class JobStrategy(WorkloadStrategy):
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
        super().prepare_for_create(obj, ctx)
        drop_disabled_fields(obj["spec"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        super().prepare_for_update(obj, old, ctx)
        drop_disabled_fields(obj["spec"], old["spec"])

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
        _validate_template_update(spec, before, errs, mutable=_template_is_mutable(old))
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
        return [] if obj["spec"] == old["spec"] else job_warnings(obj["spec"], "spec")

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


def _without_labels(selector: Obj) -> Obj:
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


def _validate_spec(spec: Obj, errs: Errors, options: PodOptions, allow_invalid_values: bool) -> None:
    validate_job_spec(spec, "spec", errs, options=options)
    declared = spec.get("selector")
    if declared is None:
        errs.append(required("spec.selector"))
    else:
        validate_label_selector(declared, "spec.selector", errs, allow_invalid_values=allow_invalid_values)
    validate_labels_match(usable_selector(declared), spec.get("template") or {}, errs)


def _validate_name(obj: Obj, errs: Errors) -> None:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        hostname = f"{name}-{completions - 1}"
        if dns1123_label(hostname):
            text = f"will not able to create pod with invalid DNS label: {hostname}"
            errs.append(invalid("metadata.name", name, text))


def _validate_completions(spec: Obj, old: Obj, errs: Errors) -> None:
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
