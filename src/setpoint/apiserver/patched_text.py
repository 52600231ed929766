"""A patched document as messages show it: what the patch touched in the order of its keys, the rest as it is stored."""

from __future__ import annotations

from typing import Any

import orjson

from setpoint.meta.schema import Shape, Type


def patched_text(type_: Type, patched: Any, live: Any) -> str:
    """`patched` shares with `live` whatever the patch left alone."""
    if not type_.go:  # custom objects have no order of their own
        return orjson.dumps(patched, option=orjson.OPT_SORT_KEYS).decode()
    return orjson.dumps(arranged(type_, patched, live)).decode()


def arranged(type_: Type | None, value: Any, live: Any) -> Any:
    if value is live:
        return _in_order(type_, value)
    if isinstance(value, dict):
        known = live if isinstance(live, dict) else {}
        return {key: arranged(_child(type_, key), value[key], known.get(key)) for key in sorted(value)}
    if isinstance(value, list):
        known_items = live if isinstance(live, list) else []
        item = type_.item if type_ is not None else None
        return [arranged(item, each, known_items[i] if i < len(known_items) else None) for i, each in enumerate(value)]
    return value


def _in_order(type_: Type | None, value: Any) -> Any:
    """Fields in the order in which they are written."""
    if type_ is None:
        return value
    if isinstance(value, dict) and type_.shape is Shape.STRUCT:
        known = {name: _in_order(field.type, value[name]) for name, field in type_.fields.items() if name in value}
        return known | {key: item for key, item in value.items() if key not in known}
    if isinstance(value, dict) and type_.shape is Shape.MAP:
        return {key: _in_order(type_.item, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_order(type_.item, item) for item in value]
    return value


def _child(type_: Type | None, key: str) -> Type | None:
    if type_ is None:
        return None
    if type_.shape is Shape.STRUCT:
        field = type_.fields.get(key)
        return field.type if field is not None else None
    return type_.item
