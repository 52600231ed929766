"""Identity of list items: how the items of a list are identified by its Type, and which types have no items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.meta.apply.field_set import key_element, value_element
from setpoint.meta.goformat import quote
from setpoint.meta.schema import ListType, Presence, Shape, Type

ElementOf = Callable[[Any], str | None]
"""Function that returns an item's path element, or None if it has no identity (no key, or of another type than the
list's items)."""

_CACHE_SIZE = 8192
_MAX_CACHED_LENGTH = 256
"""Maximum length of a cached text: clients may send long ones, and caches must be bounded."""


def element_function(type_: Type) -> ElementOf:
    known: ElementOf | None = type_.compiled.get("apply.element")
    if known is None:
        known = type_.compiled["apply.element"] = _by_keys(type_) if type_.list_type is ListType.MAP else _by_value
    return known


def key_defaults(type_: Type) -> dict[str, Any]:
    """Return the value of each key field for items that omit it; None means that there is no default.

    A field of a built-in kind that is always written has the empty value as its default.
    """
    item = type_.item
    defaults: dict[str, Any] = dict.fromkeys(type_.list_keys)
    if item is not None and item.shape is Shape.STRUCT:
        for name in type_.list_keys:
            field = item.fields.get(name)
            if field is None:
                continue
            defaults[name] = field.default
            if field.default is None and field.presence is Presence.ALWAYS:
                defaults[name] = _EMPTY_KEYS.get(field.type.shape)
    return defaults


_EMPTY_KEYS: dict[Shape, Any] = {Shape.STRING: "", Shape.INT32: 0, Shape.INT64: 0, Shape.BOOL: False}


def _by_keys(type_: Type) -> ElementOf:
    defaults = key_defaults(type_)
    names = tuple(sorted(type_.list_keys))
    # Items repeat from object to object (container names, ports), so their elements are worth remembering.
    cache: dict[Any, str] = {}

    def remember(key: Any, values: dict[str, Any]) -> str | None:
        element = key_element(values) if values else None
        if element is not None and len(element) <= _MAX_CACHED_LENGTH:
            if len(cache) >= _CACHE_SIZE:
                cache.clear()
            cache[key] = element
        return element

    if len(names) == 1:
        name = names[0]
        default = defaults[name]

        def by_one(item: Any) -> str | None:
            if type(item) is not dict:
                return None
            value = item.get(name, default)
            if type(value) is str:
                return cache.get(value) or remember(value, {name: value})
            if value is None and name not in item:
                return None
            return key_element({name: value})

        return by_one

    pairs = tuple((name, defaults[name]) for name in names)

    def by_several(item: Any) -> str | None:
        if type(item) is not dict:
            return None
        key = tuple([item.get(name, default) for name, default in pairs])
        try:
            known = cache.get((key, *map(type, key)))
        except TypeError:
            known = None
        if known is not None:
            return known
        values = {name: value for (name, _), value in zip(pairs, key) if value is not None or name in item}
        if None in key or any(type(value) in (dict, list) for value in key):
            return key_element(values) if values else None
        return remember((key, *map(type, key)), values)

    return by_several


_values: dict[str, str] = {}


def _by_value(item: Any) -> str | None:
    if type(item) is str:
        known = _values.get(item)
        if known is None:
            known = value_element(item)
            if len(item) <= _MAX_CACHED_LENGTH:
                if len(_values) >= _CACHE_SIZE:
                    _values.clear()
                _values[item] = known
        return known
    if item is None or type(item) in (dict, list):
        return None
    return value_element(item)


def is_deduced(type_: Type) -> bool:
    """Return whether values are owned field by field without a schema: those of custom kinds, not of built-in ones."""
    return type_.shape is Shape.ANY and not type_.go and not type_.atomic


def item_problem(type_: Type, item: Any) -> str:
    """Return why an item has no element."""
    if type_.list_type is ListType.MAP:
        if item is None:
            return "associative list with keys may not have a null element"
        if type(item) is not dict:
            return "associative list with keys may not have non-map elements"
        keys = "[" + " ".join(map(quote, type_.list_keys)) + "]"
        return (
            f"associative list with keys has an element that omits all key fields {keys} "
            "(and doesn't have default values for any key fields)"
        )
    if type(item) is dict:
        return "associative list without keys has an element that's a map type"
    if type(item) is list:
        return "not supported: associative list with lists as elements"
    return "associative list without keys has an element that's an explicit null"
