"""ReplicaSet: a number of Pods of one template."""

from __future__ import annotations

from setpoint.kinds.apps.podtemplate import name_warning, validate_replicated
from setpoint.kinds.columns import AGE, NAME, container_images, container_names
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
)  # fmt: skip
from setpoint.kinds.numbers import non_negative_fields
from setpoint.kinds.strategy import Column, Context, Obj, StatusStrategy, Strategy
from setpoint.meta.field import Errors, invalid
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.selectors import format_labels

_STATUS_COUNTS = (
    "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration",
    "terminatingReplicas",
)  # fmt: skip


class ReplicaSetStrategy(Strategy):
    has_status = True
    has_generation = True

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("replicas") is None:
            spec["replicas"] = 1
        default_pod_template(spec.setdefault("template", {}))

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled_template_fields(obj["spec"]["template"])

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled_template_fields(obj["spec"]["template"], old["spec"].get("template"))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj, errs, CREATE)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(obj, errs, pod_template_options(old["spec"].get("template")))
        validate_immutable(obj["spec"].get("selector"), old["spec"].get("selector"), "spec.selector", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return name_warning(obj["metadata"]["name"]) + pod_template_warnings(obj["spec"]["template"], "spec.template")

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if obj["spec"] == old["spec"]:
            return []
        return pod_template_warnings(obj["spec"]["template"], "spec.template", old["spec"].get("template"))

    columns = (
        NAME,
        Column("Desired", lambda obj, now: obj.get("spec", {}).get("replicas", 0), type="integer",
               description="Pods wanted."),
        Column("Current", lambda obj, now: obj.get("status", {}).get("replicas", 0), type="integer",
               description="Pods there are."),
        Column("Ready", lambda obj, now: obj.get("status", {}).get("readyReplicas", 0), type="integer",
               description="Pods that are ready."),
        AGE,
        Column("Containers", container_names, priority=1, description="Names of the containers in the template."),
        Column("Images", container_images, priority=1, description="Images of the containers in the template."),
        Column("Selector", lambda obj, now: format_labels(obj.get("spec", {}).get("selector")), priority=1,
               description="Which Pods belong to it."),
    )  # fmt: skip


class ReplicaSetStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = obj.get("status") or {}
        non_negative_fields(status, _STATUS_COUNTS, "status", errs)
        replicas = status.get("replicas", 0)
        for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
            if status.get(name, 0) > replicas:
                errs.append(invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas"))
        if status.get("availableReplicas", 0) > status.get("readyReplicas", 0):
            text = "cannot be greater than readyReplicas"
            errs.append(invalid("status.availableReplicas", status.get("availableReplicas", 0), text))


def _validate_spec(obj: Obj, errs: Errors, options: PodOptions) -> None:
    non_negative_fields(obj["spec"], ("replicas", "minReadySeconds"), "spec", errs)
    validate_replicated(obj["spec"], errs, options=options)


STRATEGY = ReplicaSetStrategy()
STRATEGY.subresources = {"status": ReplicaSetStatusStrategy(STRATEGY)}
