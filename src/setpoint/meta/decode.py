"""The typed round trip: the result of the reference's decoder followed by its encoder.

`decode` checks types, prunes unknown fields, writes fields in their order and maps by key, applies the presence rules
and converts quantities, times and base64 to canonical form. Each STRUCT gets a function of straight-line Python,
generated from its fields on first use. That function stops at the first error; the slow second pass in `decode_report`
determines what is wrong, and where.

Custom types (those without a `go` name) have no presence rules and are checked by their schema's validation instead:
for them decoding only copies, prunes unknown fields and applies defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from setpoint.meta.chunked_json import CHUNK_SIZE, sorted_in_chunks
from setpoint.meta.decode_report import DecodeError, number_texts, read_exactly, report
from setpoint.meta.decoders import (
    SCALARS,
    Decoder,
    Inexact,
    Wrong,
    custom_list_decoder,
    custom_map_decoder,
    custom_struct_decoder,
    decode_any,
    decode_bool,
    decode_string,
)
from setpoint.meta.schema import Field, Presence, Shape, Type

__all__ = ["DecodeError", "decode", "zero"]


def decode(
    type: Type,
    value: Any,
    *,
    strict: list[str] | None = None,
    raw: bytes | None = None,
    duplicates: Sequence[str] = (),
    emptied: list[tuple[dict[str, Any], str]] | None = None,
) -> Any:
    """Return `value` as an object of this type; null becomes an empty one.

    Only parts of type ANY share containers with the input. `strict`, if given, receives upstream's `unknown field
    "..."` and `duplicate field "..."` entries, in document order (sorted for a custom type).
    `raw` is the JSON text that `value` was read from, if any: numbers are then checked as they were written.
    `duplicates` are the duplicate keys found when the body was read.
    `emptied`, if given, receives the paths in the result where the client gave an empty list or map for a field that is
    always written: null in the result, but owned by the client as upstream has it.
    Raises DecodeError with upstream's message.
    """
    if value is None:
        value = {}
    unknown: list[Any] = []
    try:
        decoder = type.compiled.get("decode") or compile_decoder(type)
        try:
            result = decoder(value, unknown)
        except Inexact:
            unknown.clear()
            result = decoder(number_texts(value) if raw is None else read_exactly(raw), unknown)
        if emptied is not None and unknown:
            emptied += [place for place in unknown if place is not True]
        if strict is not None and (unknown or duplicates):
            strict += report(type, value, raw if duplicates else None)
    except Wrong:
        report(type, value, raw)
        raise DecodeError(f"json: cannot unmarshal value into Go value of type {type.go}") from None
    except RecursionError:
        raise DecodeError("exceeded max depth") from None
    return result


def zero(type: Type) -> Any:
    """Return the empty value, with every field that is always written."""
    if type.nullable:
        return None
    if type.shape is not Shape.STRUCT:
        return _EMPTY[type.shape]
    if (decoder := type.compiled.get("decode")) is not None or not type.go:
        return (decoder or compile_decoder(type))({}, [])
    # Bookmarks need this of many kinds of which nothing is ever decoded, so it compiles nothing.
    return {one.name: zero(one.type) for one in type.fields.values() if one.presence is Presence.ALWAYS}


_EMPTY: dict[Shape, Any] = {
    Shape.STRING: "",
    Shape.BYTES: None,
    Shape.BOOL: False,
    Shape.INT32: 0,
    Shape.INT64: 0,
    Shape.FLOAT: 0,
    Shape.QUANTITY: "0",
    Shape.TIME: None,
    Shape.MICROTIME: None,
    Shape.DURATION: "0s",
    Shape.INT_OR_STRING: 0,
    Shape.MAP: None,
    Shape.LIST: None,
    Shape.ANY: None,
}


def compile_decoder(type: Type) -> Decoder:
    known: Decoder | None = type.compiled.get("decode")
    if known is not None:
        return known
    if type.shape is Shape.STRUCT:
        made = _struct(type) if type.go else custom_struct_decoder(type, _part)
    elif type.shape is Shape.LIST:
        made = _list(type) if type.go else custom_list_decoder(type, _part)
    elif type.shape is Shape.MAP:
        made = _map(type) if type.go else custom_map_decoder(type, _part)
    elif type.shape is Shape.ANY and type.item is not None:
        made = _schema_union(type)
    elif type.go:
        made = SCALARS[type.shape]
    else:
        made = decode_any
    type.compiled["decode"] = made
    return made


def _part(type: Type, install: Callable[[Decoder], None]) -> Decoder:
    """Return the decoder of a part of another type.

    A STRUCT is compiled when its first value is decoded, and then replaces the decoder that is returned here: most
    parts of most kinds are never used, and a type may contain itself."""
    if type.shape is not Shape.STRUCT:
        return compile_decoder(type)

    def first_use(value: Any, unknown: list[bool]) -> Any:
        decoder = compile_decoder(type)
        install(decoder)
        return decoder(value, unknown)

    return first_use


# -- containers -------------------------------------------------------------------------------------------------------


def _list(type: Type) -> Decoder:
    item = type.item
    assert item is not None
    decode_item: Decoder

    def install(decoder: Decoder) -> None:
        nonlocal decode_item
        decode_item = decoder

    decode_item = _part(item, install)

    def decode_list(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not list:
            raise Wrong
        if None in value:
            return [decode_item(one, unknown) if one is not None else _null_element(item) for one in value]
        return [decode_item(one, unknown) for one in value]

    def decode_strings(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not list:
            raise Wrong
        for one in value:
            if one.__class__ is not str:
                return decode_list(value, unknown)
        return value[:]

    return decode_strings if item.shape is Shape.STRING else decode_list


def _map(type: Type) -> Decoder:
    item = type.item
    assert item is not None
    decode_item: Decoder

    def install(decoder: Decoder) -> None:
        nonlocal decode_item
        decode_item = decoder

    decode_item = _part(item, install)

    def decode_map(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            raise Wrong
        return {
            key: decode_item(one, unknown) if (one := value[key]) is not None else _null_element(item)
            for key in (sorted(value) if len(value) <= CHUNK_SIZE else sorted_in_chunks(value))
        }

    def decode_strings(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is not dict:
            raise Wrong
        for one in value.values():
            if one.__class__ is not str:
                return decode_map(value, unknown)
        if len(value) > CHUNK_SIZE:
            return {key: value[key] for key in sorted_in_chunks(value)}
        return dict(sorted(value.items())) if len(value) > 1 else value.copy()

    return decode_strings if item.shape is Shape.STRING else decode_map


def _null_element(item: Type) -> Any:
    """Return the value of a null in a list or map; upstream's storage returns bytes as empty, not as null."""
    return "" if item.shape is Shape.BYTES else zero(item)


def _schema_union(type: Type) -> Decoder:
    """Return the decoder for a JSON schema or an alternative named by the type: a boolean, a list of schemas or of
    names."""
    assert type.item is not None
    schema: Decoder

    def install(decoder: Decoder) -> None:
        nonlocal schema
        schema = decoder

    schema = _part(type.item, install)
    alternative = type.name.partition("PropsOr")[2]

    def decode_union(value: Any, unknown: list[bool]) -> Any:
        if value.__class__ is dict:
            # The reference decodes what is below by itself: unknown fields there are pruned, never reported.
            return schema(value, [])
        if alternative == "Bool":
            return decode_bool(value, unknown)
        if value.__class__ is not list or not value:
            return None
        if alternative == "Array":
            return [schema(one if one is not None else {}, []) for one in value]
        return [decode_string(one if one is not None else "", unknown) for one in value]

    return decode_union


# -- structs ----------------------------------------------------------------------------------------------------------

_INLINE_CLASS = {Shape.STRING: "str", Shape.BOOL: "bool"}
_FIELDS_PER_EXIT_CHECK = 5
"""Number of fields after which the generated function checks whether all given fields have been handled."""


def _struct(type: Type) -> Decoder:
    """Generate the decoder of a struct. For a struct with a list `a` (omit) and a string `b` (always) it reads:

    def decode_struct(value, unknown):
        if value.__class__ is not dict: raise Wrong
        get = value.get; left = len(value); out = {}
        v = get('a')
        if v is not None:
            left -= 1
            v = decode_0(v, unknown)
            if v: out['a'] = v
        v = get('b')
        if v is not None: ...
        else: out['b'] = ""
        if left: report_errors(value, unknown)
        return out
    """
    names = frozenset(type.fields)
    scope: dict[str, Any] = {"Wrong": Wrong, "zero": zero}

    def report_errors(value: dict[str, Any], unknown: list[bool]) -> None:
        if not names.issuperset(value):  # Otherwise some were null.
            unknown.append(True)

    scope["report_errors"] = report_errors
    lines = [
        "def decode_struct(value, unknown):",
        " if value.__class__ is not dict: raise Wrong",
        " get = value.get; left = len(value); out = {}",
    ]
    fields = list(type.fields.values())
    last_always = max((at for at, one in enumerate(fields) if one.presence is Presence.ALWAYS), default=-1)
    for at, one in enumerate(fields):
        lines += _field_source(one, f"{at}", scope)
        if at >= last_always and (at - last_always) % _FIELDS_PER_EXIT_CHECK == 0 and at + 2 < len(fields):
            lines.append(" if not left: return out")
    lines += [" if left: report_errors(value, unknown)", " return out"]
    exec(
        compile("\n".join(lines), f"<decoder of {type.name}>", "exec"), scope
    )  # Generated from our own tables, not from input.
    made: Decoder = scope["decode_struct"]
    return made


def _field_source(field: Field, suffix: str, scope: dict[str, Any]) -> list[str]:
    shape, key = field.type.shape, repr(field.name)
    lines = [f" v = get({key})", " if v is not None:", "  left -= 1"]
    if shape in _INLINE_CLASS:
        lines.append(f"  if v.__class__ is not {_INLINE_CLASS[shape]}: raise Wrong")
    elif shape is not Shape.ANY or field.type.item is not None:
        name = f"decode_{suffix}"
        scope[name] = _part(field.type, partial(scope.__setitem__, name))
        lines.append(f"  v = decode_{suffix}(v, unknown)")
    if field.presence is Presence.ALWAYS:
        if shape in (Shape.LIST, Shape.MAP):  # The reference does not distinguish empty from absent.
            lines += [f"  if not v: v = None; unknown.append((out, {key}))", f"  out[{key}] = v"]
        else:
            lines.append(f"  out[{key}] = v")
        scope[f"type_{suffix}"] = field.type
        simple = field.type.nullable or shape is not Shape.STRUCT
        empty = repr(zero(field.type)) if simple else f"zero(type_{suffix})"
        lines += [" else:", f"  out[{key}] = {empty}"]
    elif field.presence is Presence.KEEP:
        lines.append(f"  out[{key}] = v")
    elif shape in (Shape.TIME, Shape.MICROTIME):
        lines.append(f"  if v is not None: out[{key}] = v")
    else:
        lines.append(f"  if v: out[{key}] = v")
    return lines
