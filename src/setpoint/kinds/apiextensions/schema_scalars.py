"""Checks of single values against a schema: type, range, pattern, format, enum. Compiled once per schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.apiextensions.patterns import compile_pattern
from setpoint.kinds.apiextensions.schema_formats import format_test, is_recognized
from setpoint.meta.field import FieldError, invalid, not_supported, too_long, type_invalid
from setpoint.meta.goformat import plain, quote


class Problem(NamedTuple):
    """An error that has no path yet; `name` is None if it does not belong to a field."""

    name: str | None
    make: Callable[[str], FieldError]


Problems = list[Problem]
Old = Correlated | None
Check = Callable[[Any, str, Problems, Old], int]
Schema = Mapping[str, Any]
_TYPES: dict[type, str] = {
    bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip


def bad(name: str, value: Any, text: str) -> Problem:
    return Problem(name, lambda path: invalid(path, value, text))


def unpinned(text: str) -> Problem:
    return Problem(None, lambda path: invalid(path, "", text))


def quick_test(schema: Schema) -> Callable[[Any], bool] | None:
    """Return a fast test that a value is certainly valid, for schemas of plain scalars; None otherwise."""
    kind = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        return None
    if kind == "boolean":
        return lambda value: value.__class__ is bool
    if kind == "string":
        least, most, pattern = schema.get("minLength") or 0, schema.get("maxLength"), schema.get("pattern")
        if most is None and not least and not pattern:
            return lambda value: value.__class__ is str
        longest = _ENDLESS if most is None else most
        search = compile_pattern(pattern).search if pattern else _anything
        return lambda value: value.__class__ is str and least <= len(value) <= longest and bool(search(value))
    rare = ("multipleOf", "exclusiveMinimum", "exclusiveMaximum")
    if kind == "integer" and not any(schema.get(name) for name in rare):
        bound = _RANGES.get(schema.get("format", ""), 2**63)
        low, high = schema.get("minimum"), schema.get("maximum")
        lowest = -bound if low is None else max(-bound, low)
        highest = bound - 1 if high is None else min(bound - 1, high)
        return lambda value: value.__class__ is int and lowest <= value <= highest
    return None


_ENDLESS = 1 << 62


def _anything(value: str) -> bool:
    return True


def _types(schema: Schema, of_default: bool) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string") and not of_default:
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def check_of_type(schema: Schema, of_default: bool) -> Check | None:
    types = _types(schema, of_default)
    if not types:
        return None
    nullable, shown = bool(schema.get("nullable")), ",".join(types)
    format_name = schema.get("format", "")
    known_format = bool(format_name) and is_recognized(format_name, schema.get("type", ""))
    lenient = known_format and not {"number", "integer"} & set(types)

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if value is None:
            actual = "null"
            if nullable:
                return 1
        else:
            actual = _TYPES[value.__class__]
            if (
                actual in types
                or (actual == "integer" and "number" in types)
                or (actual == "number" and "integer" in types and value.is_integer())
                or (lenient and actual in ("string", "array"))
            ):
                return 1
        wanted, found = shown, actual
        if known_format and value is not None and actual not in ("string", "array"):
            wanted, found = format_name, _FORMATS.get(actual, "")
        text = f"{name} in body must be of type {wanted}: {quote(found)}"
        out.append(Problem(name, lambda path: type_invalid(path, found, text)))
        return 0

    return check


def check_of_text(schema: Schema) -> Check | None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is None and shortest is None and not pattern:
        return None
    compiled = compile_pattern(pattern) if pattern else None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        length = len(value)
        if longest is not None and length > longest:
            out.append(Problem(name, lambda path: too_long(path, longest)))
        elif shortest is not None and length < shortest:
            out.append(bad(name, value, f"{name} in body should be at least {shortest} chars long"))
        elif compiled is not None and not compiled.search(value):
            out.append(bad(name, value, f"{name} in body should match '{pattern}'"))
        return 0

    return check


def check_of_format(schema: Schema) -> Check | None:
    name_of_format = schema.get("format", "")
    if not name_of_format or not is_recognized(name_of_format, schema.get("type", "")):
        return None
    test = format_test(name_of_format)
    if test is None:
        return None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if not test(value):
            text = f"{name} in body must be of type {name_of_format}: {quote(value)}"
            out.append(Problem(name, lambda path: type_invalid(path, value, text)))
        return 0

    return check


_FORMATS = {"integer": "int64", "number": "float64"}
"""Names of values in messages where the schema has a format."""
_RANGES = {"int32": 2**31, "int64": 2**63}


def check_of_number(schema: Schema) -> Check:
    multiple, least, most = schema.get("multipleOf"), schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    is_integer = schema.get("type") == "integer" and not schema.get("x-kubernetes-int-or-string")
    format_name = schema.get("format", "") if is_integer else ""
    bound = _RANGES.get(format_name, 2**63) if is_integer else None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if bound is not None and (not -bound <= value < bound or value != int(value)):
            kind = f"with format {format_name}" if format_name in _RANGES else "(default format)"
            out.append(unpinned(f"Checked value must be of type integer {kind} in {name}"))
        whole = value.__class__ is int
        if multiple is not None and not _is_multiple(value, int(multiple) if whole else multiple):
            shown = plain(int(multiple) if whole else float(multiple))
            out.append(bad(name, value, f"{name} in body should be a multiple of {shown}"))
        if least is not None:
            limit = int(least) if whole else least
            if value < limit or (above and value == limit):
                than = "greater than" if above else "greater than or equal to"
                out.append(bad(name, value, f"{name} in body should be {than} {plain(limit)}"))
        if most is not None:
            limit = int(most) if whole else most
            if value > limit or (below and value == limit):
                than = "less than" if below else "less than or equal to"
                out.append(bad(name, value, f"{name} in body should be {than} {plain(limit)}"))
        return 1

    return check


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0:
        return False
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    quotient = value / factor if factor >= 1 else 1 / factor * value
    return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))


def _same(value: Any, choice: Any) -> bool:
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def check_of_enum(schema: Schema) -> Check | None:
    choices = schema.get("enum") or ()
    if not choices:
        return None
    shown = [choice if isinstance(choice, str) else orjson.dumps(choice).decode() for choice in choices]

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if value is None or not any(_same(value, choice) for choice in choices):
            out.append(Problem(name, lambda path: not_supported(path, value, shown)))
        return 0

    return check
