"""StorageVersionMigration: a request to rewrite all objects of a resource."""

from __future__ import annotations

import re
from datetime import datetime

from setpoint.kinds.columns import NAME
from setpoint.kinds.internal_form import internal_form, items, struct
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.conditions import conditions_of, is_true
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import dns1035_label, dns1123_subdomain
from setpoint.meta.objectmeta import IMMUTABLE, validate_conditions
from setpoint.meta.objects import Obj

_STATES = ("Running", "Failed", "Succeeded")
_SPEC_FORM = {"resource": struct({"group=group": "", "resource=resource": ""})}
_VERSION = re.compile("[1-9][0-9]*")


def _resource(obj: Obj) -> Obj:
    return (obj.get("spec") or {}).get("resource") or {}


def _resource_text(obj: Obj, now: datetime) -> str:
    resource = _resource(obj)
    group = resource.get("group", "")
    return f"{resource.get('resource', '')}.{group}" if group else str(resource.get("resource", ""))


def _state(obj: Obj, now: datetime) -> str:
    state = "Unknown"
    for condition in conditions_of(obj):
        if condition.get("status") == "True" and condition.get("type") in _STATES:
            state = condition["type"]
    return state


class StorageVersionMigrationStrategy(Strategy):
    allow_unconditional_update = False
    has_status = True
    columns = (
        Column("Name", NAME.cell, description=NAME.description),
        Column("Resource", _resource_text, description="What is rewritten."),
        Column("Status", _state, description="Running, failed, succeeded."),
    )

    def __init__(self) -> None:
        self.subresources = {"status": StorageVersionMigrationStatusStrategy(self)}

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        resource = _resource(obj)
        name, group = resource.get("resource", ""), resource.get("group", "")
        if not name:
            errs.append(required("spec.resource.resource", "resource is required to be set"))
        elif texts := dns1035_label(name):
            errs.append(invalid("spec.resource.resource", name, ",".join(texts)))
        if group and (texts := dns1123_subdomain(group)):
            errs.append(invalid("spec.resource.group", group, ",".join(texts)))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        self.validate(obj, errs, ctx)
        if (obj.get("spec") or {}) != (old.get("spec") or {}):
            errs.append(invalid("spec", internal_form(obj.get("spec") or {}, _SPEC_FORM), IMMUTABLE))


_CONDITION_FORM = items(
    {
        "type=type": "",
        "status=status": "",
        "lastTransitionTime=lastTransitionTime": None,
        "reason=reason": "",
        "message=message": "",
    }
)


class StorageVersionMigrationStatusStrategy(BareStatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        version = (obj.get("status") or {}).get("resourceVersion", "")
        before = (old.get("status") or {}).get("resourceVersion", "")
        path = "status.resourceVersion"
        if version and not _VERSION.fullmatch(version):
            errs.append(invalid(path, version, f"resource version is not well formed: {version}"))
        conditions = conditions_of(obj)
        validate_conditions(conditions, "status.conditions", errs)
        if before and before != version:
            errs.append(invalid(path, version, IMMUTABLE))
        succeeded, failed = is_true(obj, "Succeeded"), is_true(obj, "Failed")
        shown = _CONDITION_FORM(conditions)
        if succeeded and failed:
            text = "Both success and failed conditions cannot be true at the same time"
            errs.append(invalid("status.conditions", shown, text))
        if is_true(old, "Succeeded") and not succeeded:
            text = "Success condition cannot be set to false once it is true"
            errs.append(invalid("status.conditions", shown, text))
        if is_true(old, "Failed") and not failed:
            text = "Failed condition cannot be set to false once it is true"
            errs.append(invalid("status.conditions", shown, text))


STRATEGY = StorageVersionMigrationStrategy()
