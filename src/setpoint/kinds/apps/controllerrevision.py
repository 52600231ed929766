"""ControllerRevision: one version of the desired state of a controller, immutable once it is written."""

from __future__ import annotations

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.numbers import non_negative
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, required
from setpoint.meta.objectmeta import validate_immutable
from setpoint.meta.objects import Obj


class ControllerRevisionStrategy(Strategy):
    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        non_negative(obj.get("revision", 0), "revision", errs)
        data = obj.get("data")
        if data is None:
            errs.append(required("data", "data is mandatory"))
        elif not isinstance(data, dict):
            errs.append(required("data", "data must be a valid JSON object"))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        non_negative(obj.get("revision", 0), "revision", errs)
        validate_immutable(obj.get("data"), old.get("data"), "data", errs)

    columns = (
        NAME,
        Column("Controller", lambda obj, now: _controller(obj), description="The object this is a version of."),
        Column("Revision", lambda obj, now: obj.get("revision", 0), description="Number of the version."),
        AGE,
    )


def _controller(obj: Obj) -> str:
    for ref in obj["metadata"].get("ownerReferences", ()):
        if ref.get("controller"):
            group, slash, _ = ref.get("apiVersion", "").partition("/")
            kind = f"{ref.get('kind', '')}.{group}" if slash else ref.get("kind", "")
            return f"{kind.lower()}/{ref.get('name', '')}"
    return NONE


STRATEGY = ControllerRevisionStrategy()
