"""Does a value fit a schema? Compiled once per schema; the messages are upstream's, word for word.

A check gets the value and the name under which messages speak of it (`spec.replicas`; empty at the root), appends what
is wrong, and returns how many tests it passed through: of several alternatives that all fail, the one that got furthest
is the one whose complaints are told. With the old value at hand, what is wrong with fields that did not change is not
told: it was so before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson

from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.apiextensions.patterns import compile_pattern
from setpoint.kinds.apiextensions.schema_formats import format_test, is_recognized
from setpoint.meta.field import Errors, FieldError, invalid, not_supported, required, too_long, too_many, type_invalid
from setpoint.meta.goformat import plain, quote


class Problem(NamedTuple):
    """A finding before it has a path: `name` is None for what cannot be pinned to a field."""

    name: str | None
    make: Callable[[str], FieldError]


Problems = list[Problem]
Old = Correlated | None
Check = Callable[[Any, str, Problems, Old], int]
Schema = Mapping[str, Any]
_TYPES: dict[type, str] = {
    bool: "boolean", str: "string", int: "integer", float: "number", list: "array", dict: "object",
}  # fmt: skip


def validate_value(check: Check, value: Any, path: str, errs: Errors, old: Old = None) -> None:
    problems: Problems = []
    check(value, "", problems, None)
    if problems and old is not None:
        # A second look, with the old value in hand; most updates are spared it.
        problems.clear()
        if not old.same:
            check(value, "", problems, old)
    errs.extend(problem.make(_at(path, problem.name)) for problem in problems)


def _at(path: str, name: str | None) -> str:
    name = (name or "").removeprefix(".")
    if name:
        return f"{path}.{name}" if path else name
    return path or "<nil>"


def _bad(name: str, value: Any, text: str) -> Problem:
    return Problem(name, lambda path: invalid(path, value, text))


def _unpinned(text: str) -> Problem:
    return Problem(None, lambda path: invalid(path, "", text))


def compile_schema(schema: Schema, of_default: bool = False) -> Check:
    """`of_default`: the values are defaults inside schemas, of which an int-or-string is not looked at."""
    type_check, enum = _type_check(schema, of_default), _enum_check(schema)
    alternatives = _alternatives(schema, of_default)
    string, format_check, number = _string_check(schema), _format_check(schema), _number_check(schema)
    items, properties = _list_check(schema, of_default), _object_check(schema, of_default)
    before, counted = (type_check, alternatives), 3 + (type_check is not None)
    # Per kind of value: the checks that have something to say, and how many tests count as passed in any case.
    plans: dict[type, tuple[tuple[Check, ...], int]] = {
        str: (_present(*before, string, format_check, enum), counted + 1 + (format_check is not None)),
        int: (_present(*before, number, enum), counted + 1),
        float: (_present(*before, number, enum), counted + 1),
        list: (_present(*before, items, enum), counted + 1),
        dict: (_present(*before, enum, properties), counted + 1),
        bool: (_present(*before, enum), counted),
    }

    fits = _quick_test(schema) if enum is None and alternatives is None and format_check is None else None
    if fits is not None:
        # Nearly all values are scalars that fit, and one test tells; what is wrong with the others takes longer.
        kind = str if schema["type"] == "string" else int if schema["type"] == "integer" else bool
        passes = plans[kind][1] + 1 + (kind is int)

        def check_scalar(value: Any, name: str, out: Problems, old: Old) -> int:
            return passes if fits(value) else check(value, name, out, old)

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if value is None:
            passed = 1 if type_check is None else type_check(value, name, out, old)
            return passed if enum is None else passed + enum(value, name, out, old)
        checks, passed = plans[value.__class__]
        for part in checks:
            passed += part(value, name, out, old)
        return passed

    return check if fits is None else check_scalar


def _quick_test(schema: Schema) -> Callable[[Any], bool] | None:
    """Whether a value certainly fits, of schemas that describe plain scalars."""
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


def _present(*checks: Check | None) -> tuple[Check, ...]:
    return tuple(check for check in checks if check is not None)


def _types(schema: Schema, of_default: bool) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string") and not of_default:
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _type_check(schema: Schema, of_default: bool) -> Check | None:
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


def _alternatives(schema: Schema, of_default: bool) -> Check | None:
    any_of, one_of, all_of = (
        [compile_schema(item, of_default) for item in schema.get(name) or ()] for name in ("anyOf", "oneOf", "allOf")
    )
    negated = compile_schema(schema["not"], of_default) if schema.get("not") is not None else None
    if not any_of and not one_of and not all_of and negated is None:
        return None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        passed = 0
        if any_of:
            valid, best, count = _try(any_of, value, name, old, stop=True)
            passed += count
            if not valid:
                out.append(_unpinned(f"{quote(name)} must validate at least one schema (anyOf)"))
                out += best
        if one_of:
            valid, best, count = _try(one_of, value, name, old, stop=False)
            passed += count
            if valid != 1:
                found = f"Found {valid} valid alternatives" if valid else "Found none valid"
                text = f"{quote(name)} must validate one and only one schema (oneOf). {found}"
                out.append(_unpinned(text))
                out += best
        valid = 0
        for item in all_of:
            inner: Problems = []
            passed += item(value, name, inner, old)
            valid += not inner
            out += inner
        if valid != len(all_of):
            tail = "" if valid else ". None validated"
            out.append(_unpinned(f"{quote(name)} must validate all the schemas (allOf){tail}"))
        if negated is not None:
            inner = []
            negated(value, name, inner, old)
            if not inner:
                out.append(_unpinned(f"{quote(name)} must not validate the schema (not)"))
        return passed

    return check


def _try(checks: list[Check], value: Any, name: str, old: Old, stop: bool) -> tuple[int, Problems, int]:
    """How many hold; of those that do not, the problems of the one that got furthest; and how far that was."""
    best: Problems = []
    valid, furthest = 0, -1
    for item in checks:
        inner: Problems = []
        count = item(value, name, inner, old)
        if not inner:
            valid += 1
            best = []
            if valid == 1:
                furthest = count
            if stop:
                break
        elif not valid and count > furthest:
            best, furthest = inner, count
    return valid, best, max(furthest, 0)


def _string_check(schema: Schema) -> Check | None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is None and shortest is None and not pattern:
        return None
    compiled = compile_pattern(pattern) if pattern else None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        length = len(value)
        if longest is not None and length > longest:
            out.append(Problem(name, lambda path: too_long(path, longest)))
        elif shortest is not None and length < shortest:
            out.append(_bad(name, value, f"{name} in body should be at least {shortest} chars long"))
        elif compiled is not None and not compiled.search(value):
            out.append(_bad(name, value, f"{name} in body should match '{pattern}'"))
        return 0

    return check


def _format_check(schema: Schema) -> Check | None:
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
"""What a value is called where the schema names a format."""
_RANGES = {"int32": 2**31, "int64": 2**63}


def _number_check(schema: Schema) -> Check:
    multiple, least, most = schema.get("multipleOf"), schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    is_integer = schema.get("type") == "integer" and not schema.get("x-kubernetes-int-or-string")
    format_name = schema.get("format", "") if is_integer else ""
    bound = _RANGES.get(format_name, 2**63) if is_integer else None

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if bound is not None and (not -bound <= value < bound or value != int(value)):
            kind = f"with format {format_name}" if format_name in _RANGES else "(default format)"
            out.append(_unpinned(f"Checked value must be of type integer {kind} in {name}"))
        whole = value.__class__ is int
        if multiple is not None and not _is_multiple(value, int(multiple) if whole else multiple):
            shown = plain(int(multiple) if whole else float(multiple))
            out.append(_bad(name, value, f"{name} in body should be a multiple of {shown}"))
        if least is not None:
            limit = int(least) if whole else least
            if value < limit or (above and value == limit):
                than = "greater than" if above else "greater than or equal to"
                out.append(_bad(name, value, f"{name} in body should be {than} {plain(limit)}"))
        if most is not None:
            limit = int(most) if whole else most
            if value > limit or (below and value == limit):
                than = "less than" if below else "less than or equal to"
                out.append(_bad(name, value, f"{name} in body should be {than} {plain(limit)}"))
        return 1

    return check


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0:
        return False
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    quotient = value / factor if factor >= 1 else 1 / factor * value
    return abs(quotient - round(quotient)) < 1e-9 * max(1.0, abs(quotient))


def _list_check(schema: Schema, of_default: bool) -> Check:
    items = schema.get("items")
    item_check = compile_schema(items, of_default) if isinstance(items, dict) else None
    fewest, most, unique = schema.get("minItems"), schema.get("maxItems"), schema.get("uniqueItems")

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        passed = 1
        if item_check is not None:
            for i, item in enumerate(value):
                if old is None:
                    passed += item_check(item, f"{name}[{i}]", out, None)
                else:
                    passed += _unless_unchanged(item_check, item, f"{name}[{i}]", out, old.item(i))
        size = len(value)
        if fewest is not None and size < fewest:
            out.append(_bad(name, size, f"{name} in body should have at least {fewest} items"))
        if most is not None and size > most:
            out.append(Problem(name, lambda path: too_many(path, size, most)))
        if unique and any(item in value[:i] for i, item in enumerate(value)):
            out.append(_bad(name, "", f"{name} in body shouldn't contain duplicates"))
        return passed

    return check


def _same(value: Any, choice: Any) -> bool:
    return value == choice and isinstance(value, bool) == isinstance(choice, bool)


def _enum_check(schema: Schema) -> Check | None:
    choices = schema.get("enum") or ()
    if not choices:
        return None
    shown = [choice if isinstance(choice, str) else orjson.dumps(choice).decode() for choice in choices]

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        if value is None or not any(_same(value, choice) for choice in choices):
            out.append(Problem(name, lambda path: not_supported(path, value, shown)))
        return 0

    return check


def _object_check(schema: Schema, of_default: bool) -> Check:
    properties = {key: compile_schema(item, of_default) for key, item in (schema.get("properties") or {}).items()}
    others = schema.get("additionalProperties")
    other_check = compile_schema(others, of_default) if isinstance(others, dict) else None
    fewest, most, needed = schema.get("minProperties"), schema.get("maxProperties"), schema.get("required") or ()

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        passed = 0
        size = len(value)
        if fewest is not None and size < fewest:
            out.append(_bad(name, size, f"{name} in body should have at least {fewest} properties"))
        if most is not None and size > most:
            out.append(Problem(name, lambda path: too_many(path, size, most)))
        if others is False:
            for key in value:
                if key not in properties:
                    out.append(_bad(name, key, f"{name}.{key} in body is a forbidden property"))
        elif other_check is not None:
            for key, item in value.items():
                if key not in properties:
                    if old is None:
                        passed += other_check(item, f"{name}.{key}", out, None)
                    else:
                        passed += _unless_unchanged(other_check, item, f"{name}.{key}", out, old.key(key))
        for key, item_check in properties.items():
            if key in value:
                below = f"{name}.{key}" if name else key
                if old is None:
                    passed += item_check(value[key], below, out, None)
                else:
                    passed += _unless_unchanged(item_check, value[key], below, out, old.key(key))
        for key in needed:
            if key not in value:
                out.append(Problem(f"{name}.{key}", lambda path: required(path)))
        return passed

    return check


def _unless_unchanged(check: Check, value: Any, name: str, out: Problems, old: Old) -> int:
    before = len(out)
    passed = check(value, name, out, old)
    if old is not None and len(out) > before and old.same:
        del out[before:]
    return passed
