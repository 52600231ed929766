"""Structured merge: an applied configuration laid over the live object. Nothing is ever removed by it."""

from __future__ import annotations

from typing import Any

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
    configured = dict(zip(theirs, config))
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
                at += 1  # shared, but appended later
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
