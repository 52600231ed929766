"""Taking fields out of a value, and picking them out of one."""

from __future__ import annotations

from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet
from setpoint.meta.apply.items import element_function
from setpoint.meta.schema import ListType, Shape, Type


def remove_items(type_: Type, value: Any, unwanted: FieldSet) -> Any:
    """Return `value` without the paths of the set. A container that loses all it has becomes null."""
    if not unwanted:
        return value
    if type_.shape is Shape.LIST:
        if type(value) is not list or not value or type_.list_type is ListType.ATOMIC:
            return None
        return _from_list(type_, value, unwanted) or None
    if _is_mapped(type_):
        if type(value) is dict:
            return _from_map(type_, value, unwanted) or None if value and not type_.atomic else None
        return value if type_.shape is Shape.ANY else None
    return value


def _is_mapped(type_: Type) -> bool:
    return type_.shape in (Shape.STRUCT, Shape.MAP, Shape.ANY)


def _from_list(type_: Type, value: list[Any], unwanted: FieldSet) -> list[Any]:
    element_of = element_function(type_)
    assert type_.item is not None
    kept = []
    for item in value:
        node = unwanted.get(element_of(item) or "")
        if node is None:
            kept.append(item)
        elif node and "." not in node:
            kept.append(remove_items(type_.item, item, node))
    return kept


def _from_map(type_: Type, value: dict[str, Any], unwanted: FieldSet) -> dict[str, Any]:
    kept = {}
    for name, member in value.items():
        node = unwanted.get("f:" + name)
        if node is None:
            kept[name] = member
        elif node and "." not in node:
            kept[name] = remove_items(member_type(type_, name), member, node)
    return kept


DEDUCED = Type(Shape.ANY)


def member_type(type_: Type, name: str) -> Type:
    if type_.shape is Shape.STRUCT:
        field = type_.fields.get(name)
        return field.type if field is not None else DEDUCED
    if type_.shape is Shape.MAP and type_.item is not None:
        return type_.item
    return DEDUCED


def extract_items(type_: Type, value: Any, wanted: FieldSet) -> Any:
    """Return the parts of `value` in the set, with everything below a path that ends in the set's leaves."""
    if not wanted or type(value) not in (dict, list) or not value:
        return value
    if type_.shape is Shape.LIST:
        if type_.list_type is ListType.ATOMIC or type(value) is not list:
            return value
        element_of = element_function(type_)
        assert type_.item is not None
        picked = [
            extract_items(type_.item, item, node)
            for item in value
            if (node := wanted.get(element_of(item) or "")) is not None
        ]
        return picked or None
    if type_.atomic or type(value) is not dict:
        return value
    chosen = {
        name: extract_items(member_type(type_, name), member, node)
        for name, member in value.items()
        if (node := wanted.get("f:" + name)) is not None
    }
    return chosen or None


def with_named_fields(type_: Type, fields: FieldSet) -> FieldSet:
    """Return the set plus every declared field of a struct that paths of the set pass through."""
    out: FieldSet = {}
    for element, node in fields.items():
        if element == "." or not node:
            out[element] = node
            continue
        kind = element[0]
        if kind == "f":
            name = element[2:]
            declared = type_.shape is Shape.STRUCT and name in type_.fields
            below = with_named_fields(member_type(type_, name), node)
            if declared and "." not in below:
                below = {".": EMPTY, **below}
        else:
            item = type_.item if type_.shape is Shape.LIST and type_.item is not None else DEDUCED
            below = with_named_fields(item, node)
        out[element] = below
    return out
