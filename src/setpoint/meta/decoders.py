"""Decoders that `decode` composes: of scalar values, and of custom types.

The decoder of a scalar returns the canonical form of its value or raises Wrong. Custom types have no presence rules and
are validated by their schema later: their decoders copy, prune unknown fields, drop nulls without a meaning and set
defaults. A value of the wrong type stays, but an object or list in the place of a scalar loses everything that the
schema does not declare.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from setpoint.meta.decode_report import NumberText, lenient_base64
from setpoint.meta.quantity import QuantityError
from setpoint.meta.quantity import canonical as canonical_quantity
from setpoint.meta.schema import Shape, Type
from setpoint.meta.times import (
    TimeError,
    canonical_micro,
    canonical_time,
    format_duration,
    parse_duration,
)

Decoder = Callable[[Any, list[bool]], Any]
"""Function that decodes a value and appends to the list for an unknown field; raises Wrong."""


class Wrong(Exception):
    """A value does not fit its type."""


class Inexact(Exception):
    """A number whose text matters was read as a float."""


def decode_any(value: Any, unknown: list[bool]) -> Any:
    return value


def decode_string(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    return value


def decode_bool(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not bool:
        raise Wrong
    return value


def decode_int32(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not int or not -(2**31) <= value < 2**31:
        raise Wrong
    return value


def decode_int64(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not int or not -(2**63) <= value < 2**63:
        raise Wrong
    return value


def decode_float(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is int:
        value = float(value)
    elif not isinstance(value, float):
        raise Wrong
    return int(value) if abs(value) < 1e21 and value.is_integer() else float(value)


def decode_bytes(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is list:
        if not all(one is None or (one.__class__ is int and 0 <= one < 256) for one in value):
            raise Wrong
        return b2a_base64(bytes(one or 0 for one in value), newline=False).decode()
    if value.__class__ is not str:
        raise Wrong
    try:
        if b2a_base64(a2b_base64(value, strict_mode=True), newline=False).decode() == value:
            return value
    except (Base64Error, ValueError):
        pass
    text = lenient_base64(value)
    if text is None:
        raise Wrong
    return text


def decode_quantity(value: Any, unknown: list[bool]) -> Any:
    try:
        if value.__class__ is str:
            return canonical_quantity(value)
        if value.__class__ is int:
            return canonical_quantity(str(value))
        if value.__class__ is NumberText:
            return canonical_quantity(value.text)
    except QuantityError:
        raise Wrong from None
    if value.__class__ is float:
        raise Inexact
    raise Wrong


def decode_time(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    try:
        return canonical_time(value)
    except TimeError:
        raise Wrong from None


def decode_microtime(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    try:
        return canonical_micro(value)
    except TimeError:
        raise Wrong from None


def decode_duration(value: Any, unknown: list[bool]) -> Any:
    if value.__class__ is not str:
        raise Wrong
    try:
        return format_duration(parse_duration(value))
    except TimeError:
        raise Wrong from None


def decode_int_or_string(value: Any, unknown: list[bool]) -> Any:
    return value if value.__class__ is str else decode_int32(value, unknown)


SCALARS: dict[Shape, Decoder] = {
    Shape.STRING: decode_string,
    Shape.BYTES: decode_bytes,
    Shape.BOOL: decode_bool,
    Shape.INT32: decode_int32,
    Shape.INT64: decode_int64,
    Shape.FLOAT: decode_float,
    Shape.QUANTITY: decode_quantity,
    Shape.TIME: decode_time,
    Shape.MICROTIME: decode_microtime,
    Shape.DURATION: decode_duration,
    Shape.INT_OR_STRING: decode_int_or_string,
    Shape.ANY: decode_any,
}


class_of = type

Part = Callable[[Type, Callable[[Decoder], None]], Decoder]
"""Function that returns the decoder of a part, which may later be replaced through the second argument."""

_SCALARS = frozenset({str, int, bool})


def _scalar(value: Any, unknown: list[bool]) -> Any:
    """Convert a float without a fraction to an integer, as upstream writes and reads it."""
    if value.__class__ is float:
        return int(value) if value.is_integer() and abs(value) < 2**63 else value
    return pruned(value, unknown)


def custom_struct_decoder(type: Type, part: Part) -> Decoder:
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
                return value  # The schema does not describe the elements, so they stay.
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
    """Return a value without a schema, pruned to its scalars and the lists that contain them."""
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


def custom_list_decoder(type: Type, part: Part) -> Decoder:
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


def custom_map_decoder(type: Type, part: Part) -> Decoder:
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
