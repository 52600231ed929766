"""Decoders of custom types, which have no presence rules and are judged by their schema's validation, later: they copy,
prune what is unknown, drop nulls that mean nothing and fill defaults. A value of the wrong type stays as it is, but an
object or list in the place of a scalar loses all that the schema does not know: everything.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from setpoint.meta.decode_scalars import Decoder
from setpoint.meta.schema import Shape, Type

class_of = type

Part = Callable[[Type, Callable[[Decoder], None]], Decoder]
"""Function that returns the decoder of a part, which may later be replaced through the second argument."""

_SCALARS = frozenset({str, int, bool})


def _scalar(value: Any, unknown: list[bool]) -> Any:
    """Convert a float without a fraction to an integer, as upstream writes and reads it."""
    if value.__class__ is float:
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    return pruned(value, unknown)


def struct_decoder(type: Type, part: Part) -> Decoder:
    decoders: dict[str, Decoder | None] = {}
    for name, field in type.fields.items():
        plain = _is_plain(field.type)
        decoders[name] = None if plain else part(field.type, partial(decoders.__setitem__, name))
    defaults = {name: field.default for name, field in type.fields.items() if field.default is not None}
    nullable = {name for name, field in type.fields.items() if field.type.nullable}
    preserve = type.preserve_unknown

    def decode_struct(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            if preserve and value.__class__ is list:
                return value  # nothing is known of its elements, and what is unknown stays
            return value if value.__class__ in _SCALARS else _scalar(value, unknown)
        out: dict[str, Any] = {}
        for key, one in value.items():
            if key in decoders:
                if one is None:
                    if key in nullable:
                        out[key] = None
                    continue
                decoder = decoders[key]
                if decoder is not None:
                    out[key] = decoder(one, unknown)
                else:
                    out[key] = one if one.__class__ in _SCALARS else _scalar(one, unknown)
            elif preserve:
                out[key] = one
            else:
                unknown.append(True)
        for key, default in defaults.items():
            if key not in out:
                decoder = decoders[key]
                value = deepcopy(default)
                out[key] = value if decoder is None else decoder(value, unknown)
        return out

    return decode_struct


def pruned(value: Any, unknown: list[bool]) -> Any:
    """Return what remains of a value without a schema: its scalars and the lists that contain them."""
    if value.__class__ is dict:
        if value:
            unknown.append(True)
        return {}
    if value.__class__ is list:
        return [pruned(one, unknown) for one in value]
    return value


def _is_plain(type: Type) -> bool:
    return not type.go and type.item is None and type.shape not in (Shape.STRUCT, Shape.MAP, Shape.LIST, Shape.ANY)


def _item(type: Type, part: Part) -> Decoder:
    """Return the decoder for the non-null elements of a list or map."""
    if type.item is None:
        return pruned
    if _is_plain(type.item):
        return lambda value, unknown: value if value.__class__ in _SCALARS else _scalar(value, unknown)
    found: list[Decoder] = []
    found.append(part(type.item, partial(found.__setitem__, 0)))
    return lambda value, unknown: found[0](value, unknown)


def _for_null(type: Type) -> Any:
    """Return the value of an element that is null but not nullable."""
    item = type.item
    return None if item is None or item.nullable else item.default


def list_decoder(type: Type, part: Part) -> Decoder:
    decoder, default = _item(type, part), _for_null(type)
    of_scalars = type.item is not None and _is_plain(type.item)

    def decode_list(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not list:
            return value if value.__class__ in _SCALARS else pruned(value, unknown)
        if of_scalars and _SCALARS.issuperset(map(class_of, value)):
            return value[:]
        out = []
        for one in value:
            if one is None:
                one = deepcopy(default)
            out.append(decoder(one, unknown) if one is not None else None)
        return out

    return decode_list


def map_decoder(type: Type, part: Part) -> Decoder:
    decoder, default = _item(type, part), _for_null(type)
    keeps_null = type.item is None or type.item.nullable
    of_scalars = type.item is not None and _is_plain(type.item)

    def decode_map(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            return value if value.__class__ in _SCALARS else pruned(value, unknown)
        if of_scalars and _SCALARS.issuperset(map(class_of, value.values())):
            return value.copy()
        out: dict[str, Any] = {}
        for key, one in value.items():
            if one is None:
                if keeps_null:
                    out[key] = None
                elif default is not None:
                    out[key] = decoder(deepcopy(default), unknown)
            else:
                out[key] = decoder(one, unknown)
        return out

    return decode_map


def restore_nulls(decoded: Any, given: Any) -> None:
    """Restore the nulls of `given` that its decoded form has lost and that no default replaced.

    Validation of an applied null can then report what is wrong with it."""
    if given.__class__ is dict and decoded.__class__ is dict:
        for key, one in given.items():
            if one is None:
                decoded.setdefault(key, None)
            elif key in decoded:
                restore_nulls(decoded[key], one)
    elif given.__class__ is list and decoded.__class__ is list:
        for found, one in zip(decoded, given):
            restore_nulls(found, one)
