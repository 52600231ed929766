"""PodTemplate: a pod template stored as an object."""

from __future__ import annotations

from datetime import datetime

from setpoint.kinds.columns import NAME, labels_text
from setpoint.kinds.core.podspec import (
    default_pod_template,
    drop_disabled_template_fields,
    pod_template_options,
    pod_template_warnings,
    validate_pod_template,
)  # fmt: skip
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors


def _containers(obj: Obj, field: str) -> str:
    spec = (obj.get("template") or {}).get("spec") or {}
    return ",".join(container.get(field, "") for container in spec.get("containers") or ())


def _names(obj: Obj, now: datetime) -> str:
    return _containers(obj, "name")


def _images(obj: Obj, now: datetime) -> str:
    return _containers(obj, "image")


def _labels(obj: Obj, now: datetime) -> str:
    return labels_text(((obj.get("template") or {}).get("metadata") or {}).get("labels"))


class PodTemplateStrategy(Strategy):
    returns_deleted = True
    has_generation = True
    spec_fields = ("template",)
    columns = (
        NAME,
        Column("Containers", _names, description="Names of the containers in the template."),
        Column("Images", _images, description="Images of the containers in the template."),
        Column("Pod Labels", _labels, description="Labels that pods from the template get."),
    )

    def default(self, obj: Obj) -> None:
        default_pod_template(obj.setdefault("template", {}))

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        drop_disabled_template_fields(obj["template"])

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        validate_pod_template(obj["template"], "template", errs)

    def warnings_on_create(self, obj: Obj, ctx: Context) -> list[str]:
        return pod_template_warnings(obj["template"], "template")

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        drop_disabled_template_fields(obj["template"], old["template"])

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        validate_pod_template(obj["template"], "template", errs, options=pod_template_options(old["template"]))

    def warnings_on_update(self, obj: Obj, old: Obj, ctx: Context) -> list[str]:
        if obj["template"] == old["template"]:
            return []
        return pod_template_warnings(obj["template"], "template", old["template"])


STRATEGY = PodTemplateStrategy()
