"""Field sets that were written under an older schema of a custom kind."""

from __future__ import annotations

from setpoint.meta.apply.field_set import EMPTY, FieldSet
from setpoint.meta.apply.managers import Managers, with_fields
from setpoint.meta.apply.remove import member_type
from setpoint.meta.apply.walk import walk_of
from setpoint.meta.schema import Shape, Type

_CONTAINERS = frozenset({Shape.STRUCT, Shape.MAP, Shape.LIST})


def reconcile(type_: Type, managers: Managers) -> None:
    """Give each owner of parts of a field that has since become atomic the whole field, in place."""
    for who, entry in managers.items():
        fields = _reconciled(type_, entry["fieldsV1"])
        if fields is not entry["fieldsV1"]:
            managers[who] = with_fields(entry, fields)


def _reconciled(type_: Type, fields: FieldSet) -> FieldSet:
    out = fields
    for element, node in fields.items():
        if not node:
            continue
        below = _type_below(type_, element)
        if below is None or below.shape not in _CONTAINERS:
            continue
        new = EMPTY if walk_of(below).leaf else _reconciled(below, node)
        if new is not node:
            if out is fields:
                out = dict(fields)
            out[element] = new
    return out


def _type_below(type_: Type, element: str) -> Type | None:
    if element[0] == "f":
        if type_.shape is Shape.STRUCT and element[2:] not in type_.fields:
            return None
        return member_type(type_, element[2:])
    return type_.item if type_.shape is Shape.LIST else None
