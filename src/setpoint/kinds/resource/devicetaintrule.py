"""DeviceTaintRule: puts a taint on all devices that match."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from setpoint.kinds.cell_texts import since
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.resource.devices import stamp_taint, validate_taint
from setpoint.kinds.resource.identifiers import label_rule, validate_pool_name
from setpoint.kinds.shared_names import validate_driver_name
from setpoint.kinds.strategy import BareStatusStrategy, Column, Context, Strategy
from setpoint.meta.field import Errors, too_many
from setpoint.meta.objectmeta import validate_conditions
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

_MAX_CONDITIONS = 8


def _taint(obj: Obj) -> Obj:
    taint: Obj = obj["spec"].setdefault("taint", {})
    return taint


def _taint_cell(name: str) -> Callable[[Obj, datetime], str]:
    return lambda obj, now: str((obj["spec"].get("taint") or {}).get(name, ""))


def _time_added(obj: Obj, now: datetime) -> str:
    added = (obj["spec"].get("taint") or {}).get("timeAdded")
    return since(added, now) if added else ""


class DeviceTaintRuleStrategy(Strategy):
    allow_unconditional_update = False
    has_generation = True
    has_status = True
    columns = (
        NAME,
        Column("Key", _taint_cell("key"), description="The key of the taint."),
        Column("Value", _taint_cell("value"), description="The value that goes with the key."),
        Column("Effect", _taint_cell("effect"), description="What the taint does to pods that do not tolerate it."),
        Column("TimeAdded", _time_added, description="Time since the taint was added or changed."),
        AGE,
    )

    def __init__(self) -> None:
        self.subresources = {"status": DeviceTaintRuleStatusStrategy(self)}

    def stamp(self, obj: Obj, now: datetime) -> None:
        stamp_taint(_taint(obj), now)

    def prepare_for_create(self, obj: Obj, ctx: Context) -> None:
        self.reset_status(obj)
        self.stamp(obj, ctx.now)

    def prepare_for_update(self, obj: Obj, old: Obj, ctx: Context) -> None:
        self.retain_status(obj, old)
        self.stamp(obj, ctx.now)
        taint, before = _taint(obj), old["spec"].get("taint") or {}
        if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get("timeAdded"):
            taint["timeAdded"] = format_time(ctx.now)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        late: Errors = []
        selector, path = obj["spec"].get("deviceSelector") or {}, "spec.deviceSelector"
        if (driver := selector.get("driver")) is not None:
            validate_driver_name(driver, f"{path}.driver", errs)
        if (pool := selector.get("pool")) is not None:
            validate_pool_name(pool, f"{path}.pool", errs)
        if (device := selector.get("device")) is not None:
            label_rule(device, f"{path}.device", errs)
        validate_taint(_taint(obj), "spec.taint", errs, late)
        errs.extend(late)


class DeviceTaintRuleStatusStrategy(BareStatusStrategy):
    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        conditions = (obj.get("status") or {}).get("conditions") or []
        validate_conditions(conditions, "status.conditions", errs)
        if len(conditions) > _MAX_CONDITIONS:
            errs.append(too_many("status.conditions", len(conditions), _MAX_CONDITIONS))


STRATEGY = DeviceTaintRuleStrategy()
