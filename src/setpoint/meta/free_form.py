"""Parts of objects that are stored as given, without a schema."""

from __future__ import annotations

from setpoint.meta.schema import Shape, Type

_OWNERSHIP = "managedFields"
"""Field whose field sets have no schema, but are always rebuilt by the code that tracks field ownership."""


def is_closed(type_: Type) -> bool:
    """Return whether decoding a value of this type shares no container with the input."""
    seen: set[int] = set()

    def closed(type_: Type) -> bool:
        if id(type_) in seen:
            return True
        seen.add(id(type_))
        if type_.shape is Shape.ANY or type_.preserve_unknown or (type_.shape is Shape.STRUCT and not type_.go):
            return False
        if type_.item is not None and not closed(type_.item):
            return False
        return all(name == _OWNERSHIP or closed(field.type) for name, field in type_.fields.items())

    return closed(type_)


def has_free_parts(type_: Type) -> bool:
    """Return whether a custom type has parts without a schema, in which numbers stay as they were read."""
    known: bool | None = type_.compiled.get("free")
    if known is None:
        known = type_.compiled["free"] = _free(type_)
    return known


def _free(type_: Type) -> bool:
    if type_.go:
        return False
    if type_.shape is Shape.ANY or type_.preserve_unknown or (type_.shape is Shape.MAP and type_.item is None):
        return True
    parts = [field.type for field in type_.fields.values()] + ([type_.item] if type_.item is not None else [])
    return any(map(_free, parts))
