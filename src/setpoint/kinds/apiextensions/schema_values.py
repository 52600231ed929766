"""Validation of values by a schema. A schema is compiled once; the messages are exactly upstream's.

A check gets the value and its name in messages (`spec.replicas`; empty at the root), appends errors, and returns how
many tests it passed: if several alternatives all fail, the errors of the one that passed most tests are reported. With
an old value, errors in unchanged fields are not reported (ratcheting).
"""

from __future__ import annotations

from typing import Any

from setpoint.kinds.apiextensions import Schema
from setpoint.kinds.apiextensions.schema_scalars import (
    Check,
    Old,
    Problem,
    Problems,
    compile_enum_check,
    compile_format_check,
    compile_number_check,
    compile_text_check,
    compile_type_check,
    general_problem,
    quick_test,
    value_problem,
)
from setpoint.meta.field import Errors, required, too_many
from setpoint.meta.goformat import quote


def validate_value(check: Check, value: Any, path: str, errs: Errors, old: Old = None) -> None:
    problems: Problems = []
    check(value, "", problems, None)
    if problems and old is not None:
        # Check again with the old value; most updates do not need this.
        problems.clear()
        if not old.same:
            check(value, "", problems, old)
    errs.extend(problem.make(_at(path, problem.name)) for problem in problems)


def _at(path: str, name: str | None) -> str:
    name = (name or "").removeprefix(".")
    if name:
        return f"{path}.{name}" if path else name
    return path or "<nil>"


def compile_schema(schema: Schema, of_default: bool = False) -> Check:
    """Compile a schema. `of_default` is for defaults inside schemas, where int-or-string is not checked."""
    type_check, enum = compile_type_check(schema, of_default), compile_enum_check(schema)
    alternatives = _alternatives(schema, of_default)
    string, format_check, number = (
        compile_text_check(schema),
        compile_format_check(schema),
        compile_number_check(schema),
    )
    items, properties = _list_check(schema, of_default), _object_check(schema, of_default)
    before, counted = (type_check, alternatives), 3 + (type_check is not None)
    # By type of value: the checks that apply, and how many tests count as passed in any case.
    plans: dict[type, tuple[tuple[Check, ...], int]] = {
        str: (_present(*before, string, format_check, enum), counted + 1 + (format_check is not None)),
        int: (_present(*before, number, enum), counted + 1),
        float: (_present(*before, number, enum), counted + 1),
        list: (_present(*before, items, enum), counted + 1),
        dict: (_present(*before, enum, properties), counted + 1),
        bool: (_present(*before, enum), counted),
    }

    fits = quick_test(schema) if enum is None and alternatives is None and format_check is None else None
    if fits is not None:
        # Nearly all values are valid scalars, for which one test suffices; errors take the slow path.
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


def _present(*checks: Check | None) -> tuple[Check, ...]:
    return tuple(check for check in checks if check is not None)


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
                out.append(general_problem(f"{quote(name)} must validate at least one schema (anyOf)"))
                out += best
        if one_of:
            valid, best, count = _try(one_of, value, name, old, stop=False)
            passed += count
            if valid != 1:
                found = f"Found {valid} valid alternatives" if valid else "Found none valid"
                text = f"{quote(name)} must validate one and only one schema (oneOf). {found}"
                out.append(general_problem(text))
                out += best
        valid = 0
        for item in all_of:
            inner: Problems = []
            passed += item(value, name, inner, old)
            valid += not inner
            out += inner
        if valid != len(all_of):
            tail = "" if valid else ". None validated"
            out.append(general_problem(f"{quote(name)} must validate all the schemas (allOf){tail}"))
        if negated is not None:
            inner = []
            negated(value, name, inner, old)
            if not inner:
                out.append(general_problem(f"{quote(name)} must not validate the schema (not)"))
        return passed

    return check


def _try(checks: list[Check], value: Any, name: str, old: Old, stop: bool) -> tuple[int, Problems, int]:
    """Return how many checks pass, the errors of the failed one that passed most tests, and that number of tests."""
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
            out.append(value_problem(name, size, f"{name} in body should have at least {fewest} items"))
        if most is not None and size > most:
            out.append(Problem(name, lambda path: too_many(path, size, most)))
        if unique and any(item in value[:i] for i, item in enumerate(value)):
            out.append(value_problem(name, "", f"{name} in body shouldn't contain duplicates"))
        return passed

    return check


def _object_check(schema: Schema, of_default: bool) -> Check:
    properties = {key: compile_schema(item, of_default) for key, item in (schema.get("properties") or {}).items()}
    additional = schema.get("additionalProperties")
    other_check = compile_schema(additional, of_default) if isinstance(additional, dict) else None
    fewest, most, needed = schema.get("minProperties"), schema.get("maxProperties"), schema.get("required") or ()

    def check(value: Any, name: str, out: Problems, old: Old) -> int:
        passed = 0
        size = len(value)
        if fewest is not None and size < fewest:
            out.append(value_problem(name, size, f"{name} in body should have at least {fewest} properties"))
        if most is not None and size > most:
            out.append(Problem(name, lambda path: too_many(path, size, most)))
        if additional is False:
            for key in value:
                if key not in properties:
                    out.append(value_problem(name, key, f"{name}.{key} in body is a forbidden property"))
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
