"""Rules that the kinds with a pod template share: strategies, selector, template, status counts, table columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
    validate_pod_template,
)
from setpoint.kinds.numbers import never_decremented, non_negative_fields
from setpoint.kinds.strategy import Column, Context, StatusStrategy, Strategy
from setpoint.meta.errors import BadRequest
from setpoint.meta.field import Errors, forbidden, invalid, not_supported, required
from setpoint.meta.goformat import parse_integer, quote
from setpoint.meta.names import dns1123_label
from setpoint.meta.objectmeta import validate_immutable, validate_label_selector
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.selectors import Selector, SelectorError, format_labels, from_label_selector

_EMPTY: ObjView = {}


class WorkloadStrategy(Strategy):
    """The strategy of a kind with a pod template. Subclasses implement `default` and `validate_spec`."""

    has_status = True
    has_generation = True
    template_path = "spec.template"
    """Field path of the pod template."""
    warns_about_name = True
    """Whether the hostnames of Pods contain the object's name, so that it should be a DNS label."""

    def pod_template(self, obj: ObjView) -> Obj | None:
        """Return the pod template of an object of this kind, or None if it has none."""
        template: Obj | None = (obj.get("spec") or _EMPTY).get("template")
        return template

    def validate_spec(self, obj: Obj, errs: Errors, options: PodOptions) -> None:
        """Validate the spec by the rules that apply to a create and, with other `options`, to an update."""

    def is_template_changed(self, obj: Obj, old: Obj) -> bool:
        """Return whether an update must return the warnings of the template again."""
        return bool(obj["spec"] != old["spec"])

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled_template_fields(self.pod_template(obj))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled_template_fields(self.pod_template(obj), self.pod_template(old))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        self.validate_spec(obj, errs, CREATE)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate_spec(obj, errs, pod_template_options(self.pod_template(old)))
        validate_immutable(obj["spec"].get("selector"), old["spec"].get("selector"), "spec.selector", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        warnings = name_warning(obj["metadata"]["name"]) if self.warns_about_name else []
        return warnings + pod_template_warnings(self.pod_template(obj), self.template_path)

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if not self.is_template_changed(obj, old):
            return []
        return pod_template_warnings(self.pod_template(obj), self.template_path)


class WorkloadStatusStrategy(StatusStrategy):
    """The `/status` of a workload: counts of Pods that are consistent with each other."""

    counts: tuple[str, ...]
    """Fields of the status that must not be negative."""
    counts_of_replicas: tuple[str, ...] = ()
    """Fields of the status that must not exceed `replicas`."""
    ready_path = "readyReplicas"
    """Name of the number of ready Pods in the error for more available than ready Pods."""

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        non_negative_fields(status, self.counts, "status", errs)
        replicas, available = status.get("replicas", 0), status.get("availableReplicas", 0)
        for name in self.counts_of_replicas:
            if status.get(name, 0) > replicas:
                errs.append(invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas"))
        if available > status.get("readyReplicas", 0):
            errs.append(invalid("status.availableReplicas", available, f"cannot be greater than {self.ready_path}"))
        never_decremented(status, old.get("status") or {}, "collisionCount", "status", errs)


def usable_selector(selector: ObjView | None) -> Selector | None:
    """Return the compiled selector, or None if it is invalid, which other rules report field by field."""
    found: Errors = []
    validate_label_selector(selector, "", found)
    if found:
        return None
    try:
        return from_label_selector(selector)
    except SelectorError:
        return None


def validate_selector(selector: ObjView | None, path: str, errs: Errors, *, empty: str) -> None:
    """Validate a selector; `empty` is the error for one that selects everything."""
    if selector is None:
        errs.append(required(path))
        return
    validate_label_selector(selector, path, errs)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errs.append(invalid(path, dict(selector), empty))


def validate_labels_match(selector: Selector | None, template: ObjView, errs: Errors) -> None:
    """Validate that a selector, if it is usable, selects the Pods of the template at `spec.template`."""
    labels = (template.get("metadata") or _EMPTY).get("labels")
    if selector is not None and not selector.matches(labels or _EMPTY):
        report_labels_mismatch(labels, errs)


def report_labels_mismatch(labels: Mapping[str, str] | None, errs: Errors) -> None:
    errs.append(invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`"))


def validate_long_running(template: ObjView, errs: Errors, *, kind: str) -> None:
    """Validate that the Pods of the template at `spec.template` are always restarted and have no deadline."""
    spec = template.get("spec") or _EMPTY
    policy = spec.get("restartPolicy", "")
    if policy != "Always":
        errs.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        errs.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))


def validate_replicated(spec: ObjView, errs: Errors, *, options: PodOptions) -> None:
    """Validate the selector and the template, as ReplicaSet and Deployment require."""
    declared = spec.get("selector")
    validate_selector(declared, "spec.selector", errs, empty="empty selector is invalid for deployment")
    selector = usable_selector(declared)
    if selector is None:
        errs.append(invalid("spec.selector", declared, "invalid label selector"))
        return
    template = spec.get("template") or _EMPTY
    validate_labels_match(selector, template, errs)
    validate_pod_template(template, "spec.template", errs, options=options)
    validate_long_running(template, errs, kind="ReplicaSet")


def name_warning(name: str) -> list[str]:
    """Return a warning for names that are valid for the object but not for the hostnames of its Pods."""
    texts = dns1123_label(name)
    if not texts:
        return []
    return [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
        f"a DNS label is recommended: [{' '.join(texts)}]"
    ]


def shown_rollout_strategy(strategy: ObjView) -> Obj:
    """Return the rollout strategy of a Deployment or DaemonSet as messages print it."""
    rolling = strategy.get("rollingUpdate")
    shown = None
    if rolling is not None:
        shown = {"MaxUnavailable": rolling.get("maxUnavailable", 0), "MaxSurge": rolling.get("maxSurge", 0)}
    return {"Type": strategy.get("type", ""), "RollingUpdate": shown}


def check_int64_annotation(kind: str, text: str, prefix: str = "") -> None:
    """Raise BadRequest unless an annotation that represents a former integer field of `kind` is an int64."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        problem = "invalid syntax"
    elif not -(2**63) <= parse_integer(text) < 2**63:
        problem = "value out of range"
    else:
        return
    why = f"{prefix}strconv.ParseInt: parsing {quote(text)}: {problem}"
    raise BadRequest(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')


# -- table columns ----------------------------------------------------------------------------------------------------


def count_column(name: str, part: str, field: str, description: str, type: str = "integer") -> Column:
    """Return a column with a number of the spec or status, which is 0 if it is absent."""
    return Column(name, lambda obj, now: (obj.get(part) or _EMPTY).get(field, 0), type, description=description)


def container_columns(pod_template: Callable[[ObjView], ObjView | None], priority: int = 1) -> tuple[Column, Column]:
    """Return the columns with the names and images of the template's containers."""

    def joined(obj: Obj, field: str) -> str:
        spec = (pod_template(obj) or _EMPTY).get("spec") or _EMPTY
        return ",".join(container.get(field, "") for container in spec.get("containers") or ())

    return (
        Column(
            "Containers",
            lambda obj, now: joined(obj, "name"),
            priority=priority,
            description="Names of the containers in the template.",
        ),
        Column(
            "Images",
            lambda obj, now: joined(obj, "image"),
            priority=priority,
            description="Images of the containers in the template.",
        ),
    )


def _spec_template(obj: ObjView) -> Any:
    return (obj.get("spec") or _EMPTY).get("template")


def _ready(obj: ObjView) -> str:
    return f"{(obj.get('status') or _EMPTY).get('readyReplicas', 0)}/{(obj.get('spec') or _EMPTY).get('replicas', 0)}"


READY = Column("Ready", lambda obj, now: _ready(obj), description="Ready Pods of the desired number.")
CONTAINERS, IMAGES = container_columns(_spec_template)
SELECTOR = Column(
    "Selector",
    lambda obj, now: format_labels((obj.get("spec") or _EMPTY).get("selector")),
    priority=1,
    description="Which Pods belong to it.",
)
