"""PodTemplate: a pod template stored as an object."""

from __future__ import annotations

from setpoint.kinds.apps.workload import WorkloadStrategy, container_columns
from setpoint.kinds.cell_texts import labels_text
from setpoint.kinds.columns import NAME
from setpoint.kinds.core.podspec import PodOptions, default_pod_template, pod_template_options, validate_pod_template
from setpoint.kinds.strategy import Column, Context
from setpoint.meta.field import Errors
from setpoint.meta.objects import Obj, ObjView


def _template(obj: ObjView) -> Obj | None:
    template: Obj | None = obj.get("template")
    return template


def _labels(obj: Obj) -> str:
    return labels_text(((obj.get("template") or {}).get("metadata") or {}).get("labels"))


class PodTemplateStrategy(WorkloadStrategy):
    has_status = False
    returns_deleted = True
    spec_fields = ("template",)
    template_path = "template"
    warns_about_name = False
    columns = (
        NAME,
        *container_columns(_template, priority=0),
        Column("Pod Labels", lambda obj, now: _labels(obj), description="Labels that pods from the template get."),
    )

    def pod_template(self, obj: ObjView) -> Obj | None:
        return _template(obj)

    def default(self, obj: Obj) -> None:
        default_pod_template(obj.setdefault("template", {}))

    def validate_spec(self, obj: Obj, errs: Errors, options: PodOptions) -> None:
        validate_pod_template(obj["template"], "template", errs, options=options)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate_spec(obj, errs, pod_template_options(old["template"]))

    def is_template_changed(self, obj: Obj, old: Obj) -> bool:
        return bool(obj["template"] != old["template"])


STRATEGY = PodTemplateStrategy()
