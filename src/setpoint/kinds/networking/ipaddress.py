"""IPAddress: one address of a Service range, and the object it is allocated to."""

from __future__ import annotations

from setpoint.kinds.cell_texts import NONE
from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.shared_names import validate_group, validate_segment
from setpoint.kinds.strategy import Column, Context, Strategy
from setpoint.meta.field import Errors, invalid, required
from setpoint.meta.names import ip
from setpoint.meta.objectmeta import IMMUTABLE
from setpoint.meta.objects import Obj


class IPAddressStrategy(Strategy):
    generates_names = False

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return ip(name)

    def validate(self, obj: Obj, errs: Errors, ctx: Context) -> None:
        parent = (obj.get("spec") or {}).get("parentRef")
        if parent is None:
            errs.append(required("spec.parentRef"))
            return
        _validate_parent(parent, errs, ())
        # Upstream declares these rules at the type and therefore reports them last.
        for name in ("resource", "name"):
            if not parent.get(name):
                errs.append(required(f"spec.parentRef.{name}"))

    def validate_update(self, obj: Obj, old: Obj, errs: Errors, ctx: Context) -> None:
        parent = (obj.get("spec") or {}).get("parentRef")
        if parent == (old.get("spec") or {}).get("parentRef"):
            self.validate(obj, errs, ctx)
            return
        # A changed immutable reference is not validated further by declarative rules: the handwritten ones report
        # instead.
        if parent is None:
            errs.append(required("spec.parentRef"))
        else:
            _validate_parent(parent, errs, ("resource", "name"))
        errs.append(invalid("spec.parentRef", None, IMMUTABLE))

    columns = (
        NAME,
        Column("ParentRef", lambda obj, now: _parent(obj), description="The object that has the address."),
        # Upstream's rows end with an age that its column definitions do not list.
        Column("", AGE.cell),
    )


def _validate_parent(parent: Obj, errs: Errors, needed: tuple[str, ...]) -> None:
    if parent.get("group"):
        validate_group(parent["group"], "spec.parentRef.group", errs)
    for name in ("resource", "name", "namespace"):
        if name in needed and not parent.get(name):
            errs.append(required(f"spec.parentRef.{name}"))
        validate_segment(parent.get(name, ""), f"spec.parentRef.{name}", errs)


def _parent(obj: Obj) -> str:
    parent = (obj.get("spec") or {}).get("parentRef")
    if parent is None:
        return NONE
    group, resource = parent.get("group", ""), parent.get("resource", "")
    where = [parent["namespace"]] if parent.get("namespace") else []
    return "/".join([(f"{resource}.{group}" if group else resource).lower(), *where, parent.get("name", "")])


STRATEGY = IPAddressStrategy()
