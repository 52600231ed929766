"""Expressions with the recorded results of the reference: value, type, cost, estimate, or errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from setpoint.meta.cel import (
    CelError,
    CelProblem,
    Duration,
    Environment,
    Optional,
    Timestamp,
    Type,
    Uint,
    kubernetes_environment,
    schema_type,
    sizer,
)
from setpoint.meta.cel.compile_loops import entries
from setpoint.meta.cel.declarations import parse_type
from setpoint.meta.cel.go_text import format_general, format_timestamp
from setpoint.meta.cel.values import Opaque, is_list, is_map

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded.json").read_text())
_TYPES = {
    "list_int": "list(int)",
    "list_string": "list(string)",
    "list_dyn": "list(dyn)",
    "map_string_int": "map(string, int)",
    "map_string_string": "map(string, string)",
    "map_string_dyn": "map(string, dyn)",
}


def show(value: Any) -> str:
    """Return a value in the form of the recording."""
    if value is None:
        return "null"
    match value:
        case bool():
            return "true" if value else "false"
        case Uint():
            return f"{int(value)}u"
        case int():
            return str(value)
        case float():
            return f"{format_general(value)}!"
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        case bytes():
            return f"b{value.hex()}"
        case Timestamp():
            return f"ts:{format_timestamp(value)}"
        case Duration():
            return f"dur:{value.nanoseconds}"
        case Optional():
            return f"opt({show(value.value)})" if value.present else "none"
        case Type():
            return f"type:{value.name}"
        case Opaque():
            return f"{value.TYPE.name}<{value}>"
    if is_list(value):
        return "[" + ", ".join(map(show, value)) + "]"
    assert is_map(value)
    return "{" + ", ".join(sorted(f"{show(key)}: {show(item)}" for key, item in entries(value))) + "}"


def _environment(section: dict[str, Any]) -> Environment:
    variables = {name: parse_type(_TYPES.get(kind, kind)) for name, kind in section["variables"].items()}
    return kubernetes_environment(stored=True).extended(variables)


def _outcome(environment: Environment, text: str, bindings: dict[str, Any], sizes: Any = None) -> dict[str, Any]:
    try:
        program = environment.compile(text)
    except CelProblem as problem:
        return {"expr": text, "issues": str(problem)}
    except CelError as error:
        return {"expr": text, "fails": str(error)}
    found: dict[str, Any] = {"expr": text, "type": str(program.result), "estimate": list(program.cost_estimate(sizes))}
    outcome = program.evaluate(bindings)
    if outcome.error is not None:
        return {**found, "error": outcome.error}
    return {**found, "value": show(outcome.value), "cost": outcome.cost}


def _cases(section: str) -> list[Any]:
    return [pytest.param(case, id=case["expr"][:60]) for case in RECORDED[section]["cases"]]


PLAIN = _environment(RECORDED["plain"])
SYNTAX = _environment(RECORDED["syntax"])


@pytest.mark.parametrize("case", _cases("plain"))
def test_with_declared_variables(case: dict[str, Any]) -> None:
    assert _outcome(PLAIN, case["expr"], RECORDED["plain"]["values"]) == case


@pytest.mark.parametrize("case", _cases("schema"))
def test_with_a_schema(case: dict[str, Any]) -> None:
    section = RECORDED["schema"]
    schema = schema_type(section["schema"])
    assert schema is not None
    environment = kubernetes_environment(stored=True).extended(
        {"self": schema.type, "oldSelf": schema.type}, schema.structs
    )
    value = schema.value(section["self"])
    assert _outcome(environment, case["expr"], {"self": value, "oldSelf": value}, sizer(schema)) == case


@pytest.mark.parametrize("case", _cases("syntax"))
def test_unreadable_values_are_errors(case: dict[str, Any]) -> None:
    assert _outcome(SYNTAX, case["expr"], {}) == case
