"""IPAddress: one address of a Service range, and whose it is."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME, NONE
from setpoint.kinds.networking.references import validate_group, validate_segment
from setpoint.kinds.strategy import Column, Context, Obj, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import ip
from setpoint.meta.objectmeta import IMMUTABLE


class IPAddressStrategy(Strategy):
    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return ip(name)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        parent = (obj.get("spec") or {}).get("parentRef")
        if parent is None:
            errs.append(required("spec.parentRef"))
            return
        if parent.get("group"):
            validate_group(parent["group"], "spec.parentRef.group", errs)
        for name in ("resource", "name", "namespace"):
            validate_segment(parent.get(name, ""), f"spec.parentRef.{name}", errs)
        # Upstream declares these two at the type itself; what is declared is reported last.
        for name in ("resource", "name"):
            if not parent.get(name):
                errs.append(required(f"spec.parentRef.{name}"))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        parent = (obj.get("spec") or {}).get("parentRef")
        found: Errors = []
        self.validate(obj, found, ctx)
        if parent != (old.get("spec") or {}).get("parentRef"):
            # A declared rule that stops at the first of its field: required before immutable, nothing after that.
            last = found if parent is None else [error for error in found if error.reason != "FieldValueRequired"]
            errs.extend(last)
            errs.append(invalid("spec.parentRef", None, IMMUTABLE))
        else:
            errs.extend(found)

    columns = (
        NAME,
        Column("ParentRef", lambda obj, now: _parent(obj), description="The object that has the address."),
    )


def _parent(obj: Obj) -> str:
    parent = (obj.get("spec") or {}).get("parentRef")
    if parent is None:
        return NONE
    group, resource = parent.get("group", ""), parent.get("resource", "")
    parts = [(f"{resource}.{group}" if group else resource).lower(), parent.get("namespace", ""), parent.get("name", "")]
    return "/".join(part for i, part in enumerate(parts) if part or i != 1)


STRATEGY = IPAddressStrategy()
