"""Structured merge of an applied configuration and the live object; removal and extraction of fields of a value."""

from __future__ import annotations

from typing import Any

from setpoint.meta.apply.field_set import EMPTY, FieldSet
from setpoint.meta.apply.items import element_function, is_deduced
from setpoint.meta.schema import ListType, Shape, Type

_MISSING = object()


def merge(type_: Type, live: Any, config: Any) -> Any:
    """Merge two values that have passed `check`. If the configuration changes nothing, return the live value itself."""
    shape = type_.shape
    if shape is Shape.LIST:
        if type_.list_type is ListType.ATOMIC or not (live or config):
            return config
        return _merge_list(type_, live or [], config or [])
    if type_.atomic or type(config) not in (dict, type(None)) or type(live) not in (dict, type(None)):
        return config
    if shape is Shape.STRUCT or shape is Shape.MAP or is_deduced(type_):
        return _merge_map(type_, live, config) if live or config else config
    return config


def _merge_map(type_: Type, live: dict[str, Any] | None, config: dict[str, Any] | None) -> dict[str, Any]:
    if not config:
        assert live is not None
        return live
    if not live:
        return config
    merged = live
    for name, value in config.items():
        current = live.get(name, _MISSING)
        if current is value:
            continue
        new = value if current is _MISSING else _merge_member(type_, name, current, value)
        if new is not current and not (current is not _MISSING and type(new) is type(current) and new == current):
            if merged is live:
                merged = dict(live)
            merged[name] = new
    return merged


def _merge_member(type_: Type, name: str, live: Any, config: Any) -> Any:
    if type_.shape is Shape.STRUCT:
        field = type_.fields.get(name)
        if field is not None:
            return merge(field.type, live, config)
    elif type_.shape is Shape.MAP and type_.item is not None:
        return merge(type_.item, live, config)
    if type(live) is dict and type(config) in (dict, type(None)):
        return _merge_map(_DEDUCED, live, config)
    return config


_DEDUCED = Type(Shape.ANY)


def _merge_list(type_: Type, live: list[Any], config: list[Any]) -> list[Any]:
    """Merge two lists: shared items are in the order of `config`, the others stay at their place between them."""
    element_of = element_function(type_)
    item_type = type_.item
    assert item_type is not None
    theirs = [element_of(item) or "" for item in config]
    ours = [element_of(item) or "" for item in live]
    configured: dict[str, Any] = {}
    for element, item in zip(theirs, config):  # one call of dict() would block all threads if the list is long
        configured[element] = item
    known: dict[str, Any] = {}
    for element, item in zip(ours, live):
        # Repeated items are not merged.
        known[element] = None if element in known else item

    def merged(element: str) -> Any:
        current = known.get(element, _MISSING)
        value = configured[element]
        return value if current is _MISSING else merge(item_type, current, value)

    shared = iter([element for element in theirs if element in known])
    next_shared = next(shared, None)
    done: set[str] = set()
    out: list[Any] = []
    at, to = 0, 0
    while at < len(ours) or to < len(theirs):
        if at < len(ours) and to < len(theirs):
            element = ours[at]
            if element == theirs[to]:
                done.add(element)
                out.append(merged(element))
                at, to = at + 1, to + 1
                next_shared = next(shared, None)
                continue
            if element in configured and next_shared is not None and next_shared != element:
                at += 1  # Shared for now, but later items are appended.
                continue
        if at < len(ours):
            element = ours[at]
            if element not in configured:
                out.append(live[at])
                at += 1
                continue
            if element in done:
                at += 1
        if to < len(theirs):
            element = theirs[to]
            done.add(element)
            out.append(merged(element))
            to += 1
            if next_shared == element:
                next_shared = next(shared, None)
    if len(out) == len(live) and all(new is old for new, old in zip(out, live)):
        return live
    return out


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
    remaining = []
    for item in value:
        node = unwanted.get(element_of(item) or "")
        if node is None:
            remaining.append(item)
        elif node and "." not in node:
            remaining.append(remove_items(type_.item, item, node))
    return remaining


def _from_map(type_: Type, value: dict[str, Any], unwanted: FieldSet) -> dict[str, Any]:
    remaining = {}
    for name, member in value.items():
        node = unwanted.get("f:" + name)
        if node is None:
            remaining[name] = member
        elif node and "." not in node:
            remaining[name] = remove_items(member_type(type_, name), member, node)
    return remaining


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
