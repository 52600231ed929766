"""Decoders of custom types, which have no presence rules and are judged by their schema's validation, later: they copy,
prune what is unknown and fill defaults. A value of the wrong type stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

from setpoint.meta.decode_scalars import Decoder
from setpoint.meta.schema import Shape, Type

Part = Callable[[Type, Callable[[Decoder], None]], Decoder]
"""Gives the decoder of a part, which may later be replaced through the second argument."""


def struct_decoder(type: Type, part: Part) -> Decoder:
    decoders: dict[str, Decoder | None] = {}
    for name, field in type.fields.items():
        plain = _is_plain(field.type)
        decoders[name] = None if plain else part(field.type, partial(decoders.__setitem__, name))
    defaults = {name: field.default for name, field in type.fields.items() if field.default is not None}
    keeps_null = {name for name, field in type.fields.items() if field.type.nullable or field.default is None}
    preserve = type.preserve_unknown

    def decode_struct(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            return value
        out: dict[str, Any] = {}
        for key, one in value.items():
            if key in decoders:
                if one is None:
                    if key in keeps_null:
                        out[key] = None
                else:
                    decoder = decoders[key]
                    out[key] = decoder(one, unknown) if decoder is not None else one
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


def _is_plain(type: Type) -> bool:
    return not type.go and type.item is None and type.shape is not Shape.STRUCT


def _item(type: Type, part: Part) -> Decoder | None:
    if type.item is None or _is_plain(type.item):
        return None
    found: list[Decoder] = []
    found.append(part(type.item, partial(found.__setitem__, 0)))
    return lambda value, unknown: found[0](value, unknown)


def list_decoder(type: Type, part: Part) -> Decoder:
    decoder = _item(type, part)

    def decode_list(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not list:
            return value
        if decoder is None:
            return value[:]
        return [decoder(one, unknown) if one is not None else None for one in value]

    return decode_list


def map_decoder(type: Type, part: Part) -> Decoder:
    decoder = _item(type, part)

    def decode_map(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            return value
        if decoder is None:
            return value.copy()
        return {key: decoder(one, unknown) if one is not None else None for key, one in value.items()}

    return decode_map
