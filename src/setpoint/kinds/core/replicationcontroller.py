"""ReplicationController: the ReplicaSet's elder, with a plain map for a selector."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apps.podtemplate import name_warning
from setpoint.kinds.columns import AGE, NAME, container_images, container_names, labels_text
from setpoint.kinds.core.podspec import (
    CREATE,
    PodOptions,
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
    validate_pod_template,
)  # fmt: skip
from setpoint.kinds.numbers import non_negative_fields
from setpoint.kinds.strategy import Column, Context, Obj, StatusStrategy, Strategy
from setpoint.meta.field import Errors, FieldError, forbidden, invalid, not_supported, required

_NON_CONVERTIBLE = "non-convertible.kubernetes.io"
_STATUS_COUNTS = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")


def _spec(obj: Obj) -> dict[str, Any]:
    return obj.get("spec") or {}


def _status(obj: Obj) -> dict[str, Any]:
    return obj.get("status") or {}


class ReplicationControllerStrategy(Strategy):
    columns = (
        NAME,
        Column("Desired", lambda obj, now: _spec(obj).get("replicas", 0), type="integer", description="Pods wanted."),
        Column("Current", lambda obj, now: _status(obj).get("replicas", 0), type="integer",
               description="Pods that exist."),
        Column("Ready", lambda obj, now: _status(obj).get("readyReplicas", 0), type="integer",
               description="Pods that are ready."),
        AGE,
        Column("Containers", container_names, priority=1, description="Names of the template's containers."),
        Column("Images", container_images, priority=1, description="Images of the template's containers."),
        Column("Selector", lambda obj, now: labels_text(_spec(obj).get("selector")), priority=1,
               description="Labels of the Pods it counts as its own."),
    )  # fmt: skip
    field_labels = Strategy.field_labels | {"status.replicas"}
    has_status = True
    has_generation = True
    orphans_by_default = True

    def __init__(self) -> None:
        self.subresources = {"status": ReplicationControllerStatusStrategy(self)}

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        template = spec.get("template")
        if template is not None:
            labels = (template.get("metadata") or {}).get("labels")
            if labels:
                if not spec.get("selector"):
                    spec["selector"] = dict(labels)
                if not obj["metadata"].get("labels"):
                    obj["metadata"]["labels"] = dict(labels)
            default_pod_template(template)
        spec.setdefault("replicas", 1)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        drop_disabled_template_fields(_spec(obj).get("template"))

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        drop_disabled_template_fields(_spec(obj).get("template"), _spec(old).get("template"))

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        _validate_spec(_spec(obj), errs, CREATE)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        spec, old_spec = _spec(obj), _spec(old)
        _validate_spec(spec, errs, pod_template_options(old_spec.get("template")))
        for key, value in (old["metadata"].get("annotations") or {}).items():
            if not key.startswith(_NON_CONVERTIBLE) or key.count("/") != 1:
                continue
            broken = key.partition("/")[2]
            if "selector" not in broken:
                errs.append(FieldError("FieldValueNotFound", broken, value, "unknown non-convertible field"))
            elif spec.get("selector") != old_spec.get("selector"):
                errs.append(invalid("spec.selector", spec.get("selector"), "cannot update non-convertible selector"))

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        warnings = pod_template_warnings(_spec(obj).get("template"), "spec.template")
        return name_warning(obj["metadata"]["name"]) + warnings

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if _spec(obj) == _spec(old):
            return []
        return pod_template_warnings(_spec(old).get("template"), "spec.template", _spec(obj).get("template"))

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"status.replicas": str(_status(obj).get("replicas", 0))}


class ReplicationControllerStatusStrategy(StatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        status = _status(obj)
        non_negative_fields(status, _STATUS_COUNTS, "status", errs)
        total, ready = status.get("replicas", 0), status.get("readyReplicas", 0)
        for name in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
            if status.get(name, 0) > total:
                errs.append(invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas"))
        if status.get("availableReplicas", 0) > ready:
            text = "cannot be greater than readyReplicas"
            errs.append(invalid("status.availableReplicas", status.get("availableReplicas", 0), text))


def _validate_spec(spec: dict[str, Any], errs: Errors, options: PodOptions) -> None:
    selector = spec.get("selector") or {}
    if not selector:
        errs.append(required("spec.selector"))
    template = spec.get("template")
    if template is None:
        errs.append(required("spec.template"))
    else:
        labels = (template.get("metadata") or {}).get("labels")
        if any((labels or {}).get(key) != value for key, value in selector.items()):
            text = "`selector` does not match template `labels`"
            errs.append(invalid("spec.template.metadata.labels", labels, text))
        validate_pod_template(template, "spec.template", errs, options=options)
        pod = template.get("spec") or {}
        if pod.get("restartPolicy") != "Always":
            policy = pod.get("restartPolicy", "")
            errs.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
        if "activeDeadlineSeconds" in pod:
            text = "activeDeadlineSeconds in ReplicationController is not Supported"
            errs.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))
    # Upstream checks these by declaration, after everything else.
    if "replicas" not in spec:
        errs.append(required("spec.replicas"))
    non_negative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)


STRATEGY = ReplicationControllerStrategy()
