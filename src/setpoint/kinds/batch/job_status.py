"""Validation of a Job's status and its changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.kinds.batch.completion_policies import count_indexes, overlapping_index
from setpoint.kinds.numbers import non_negative_fields
from setpoint.kinds.strategy import Context, Obj, StatusStrategy
from setpoint.meta.field import OMIT, Errors, duplicate, invalid, required
from setpoint.meta.objectmeta import IMMUTABLE


def condition_is(status: Mapping[str, Any], kind: str, value: str) -> bool:
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
        self.spec: dict[str, Any] = obj["spec"]
        self.status: dict[str, Any] = obj.get("status") or {}
        self.before: dict[str, Any] = old.get("status") or {}
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
            ("Failed", self.was_failed, self.failed), ("Complete", self.was_complete, self.complete),
            ("FailureTarget", self.was_target, self.target),
        ):  # fmt: skip
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
