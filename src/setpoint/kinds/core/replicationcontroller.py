"""ReplicationController: the predecessor of ReplicaSet, whose selector is a plain map."""

from __future__ import annotations

from setpoint.kinds.apps.workload import (
    CONTAINERS,
    IMAGES,
    WorkloadStatusStrategy,
    WorkloadStrategy,
    count_column,
    report_labels_mismatch,
    validate_long_running,
)
from setpoint.kinds.cell_texts import labels_text
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.core.podspec import (
    PodOptions,
    default_pod_template,
    pod_template_options,
    pod_template_warnings,
    validate_pod_template,
)
from setpoint.kinds.numbers import non_negative_fields
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, FieldError, invalid, required
from setpoint.meta.objects import Obj

_NON_CONVERTIBLE = "non-convertible.kubernetes.io"


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _status(obj: Obj) -> Obj:
    return obj.get("status") or {}


class ReplicationControllerStrategy(WorkloadStrategy):
    columns = (
        NAME,
        count_column("Desired", "spec", "replicas", "Pods wanted."),
        count_column("Current", "status", "replicas", "Pods that exist."),
        count_column("Ready", "status", "readyReplicas", "Pods that are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        Column(
            "Selector",
            lambda obj, now: labels_text(_spec(obj).get("selector")),
            priority=1,
            description="Labels of the Pods that belong to it.",
        ),
    )
    field_labels = Strategy.field_labels | {"status.replicas"}
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

    def validate_spec(self, obj: Obj, errs: Errors, options: PodOptions) -> None:
        _validate_spec(_spec(obj), errs, options)

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

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if _spec(obj) == _spec(old):
            return []
        # Upstream warns about the old template here.
        return pod_template_warnings(_spec(old).get("template"), "spec.template")

    def selectable_fields(self, obj: Obj) -> dict[str, str]:
        return {"status.replicas": str(_status(obj).get("replicas", 0))}


class ReplicationControllerStatusStrategy(WorkloadStatusStrategy):
    counts = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
    counts_of_replicas = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def _validate_spec(spec: Obj, errs: Errors, options: PodOptions) -> None:
    selector = spec.get("selector") or {}
    if not selector:
        errs.append(required("spec.selector"))
    template = spec.get("template")
    if template is None:
        errs.append(required("spec.template"))
    else:
        labels = (template.get("metadata") or {}).get("labels")
        if any((labels or {}).get(key) != value for key, value in selector.items()):
            report_labels_mismatch(labels, errs)
        validate_pod_template(template, "spec.template", errs, options=options)
        validate_long_running(template, errs, kind="ReplicationController")
    # Upstream declares these rules at the type and therefore reports them last.
    if "replicas" not in spec:
        errs.append(required("spec.replicas"))
    non_negative_fields(spec, ("replicas", "minReadySeconds"), "spec", errs)


STRATEGY = ReplicationControllerStrategy()
