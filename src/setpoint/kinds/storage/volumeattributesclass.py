"""VolumeAttributesClass: settings of volumes that can be changed while they are in use."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.shared_names import validate_parameters, validate_provisioner
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, forbidden, required
from setpoint.meta.objects import Obj


class VolumeAttributesClassStrategy(Strategy):
    returns_deleted = True

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        if not obj.get("driverName"):
            errs.append(required("driverName"))
        validate_provisioner(obj.get("driverName", ""), "driverName", errs)
        validate_parameters(obj.get("parameters"), "parameters", errs, needed=True)

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        if obj.get("driverName", "") != old.get("driverName", ""):
            errs.append(forbidden("driverName", "updates to driverName are forbidden."))
        if (obj.get("parameters") or {}) != (old.get("parameters") or {}):
            errs.append(forbidden("parameters", "updates to parameters are forbidden."))
        self.validate(obj, errs, ctx)

    columns = (
        NAME,
        Column("DriverName", lambda obj, now: obj.get("driverName", ""), description="The driver that applies it."),
        AGE,
    )


STRATEGY = VolumeAttributesClassStrategy()
