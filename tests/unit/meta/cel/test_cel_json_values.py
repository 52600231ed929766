"""Values with a schema: conversion of JSON, and lists that are sets or have keys."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.meta.cel import Outcome, kubernetes_environment, schema_type

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "since": {"type": "string", "format": "date-time"}},
            },
        },
        "plain": {"type": "array", "items": {"type": "string"}},
        "ratio": {"type": "number"},
        "weights": {"type": "object", "additionalProperties": {"type": "number"}},
        "secret": {"type": "string", "format": "byte"},
        "every": {"type": "string", "format": "duration"},
        "maybe": {"type": "string", "nullable": True},
        "a.b": {"type": "integer"},
        "hidden": {"x-kubernetes-preserve-unknown-fields": True},
    },
}
OLD = {
    "set": ["a", "b"],
    "ports": [{"name": "x", "since": "2024-01-01T00:00:00Z"}, {"name": "y"}],
    "plain": ["a", "b"],
    "ratio": 2,
    "weights": {"k": 1},
    "secret": "aGk=",
    "every": "1h",
    "maybe": None,
    "a.b": 7,
}
NEW = {
    **OLD,
    "set": ["b", "a"],
    "ports": [{"name": "y"}, {"name": "x", "since": "2024-01-01T02:00:00+02:00"}],
    "plain": ["b", "a"],
    "ratio": 2.0,
}


def evaluate(text: str) -> Outcome:
    schema = schema_type(SCHEMA)
    assert schema is not None
    environment = kubernetes_environment().extended({"self": schema.type, "oldSelf": schema.type}, schema.structs)
    return environment.compile(text).evaluate({"self": schema.value(NEW), "oldSelf": schema.value(OLD)})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("self.set == oldSelf.set", True),
        ("self.plain == oldSelf.plain", False),
        ("self.ports == oldSelf.ports", True),
        ("self == oldSelf", False),
        ("self.ratio == oldSelf.ratio && self.ratio / 4.0 == 0.5", True),
        ("self.weights.k + 0.5", 1.5),
        ("self.secret == b'hi'", True),
        ("self.every + duration('1m') > duration('1h')", True),
        ("has(self.maybe)", False),
        ("self.a__dot__b + 1", 8),
        ("dyn(self).a__dot__b + 1", 8),
        ("self.ports.exists(p, has(p.since) && p.since.getHours() == 0)", True),
        ("(self.set + ['a', 'c']).size()", 3),
        ("(self.set + ['a', 'c']) == ['c', 'b', 'a']", True),
        ("(self.ports + oldSelf.ports).map(p, p.name)", ["y", "x"]),
        ("self.ports + oldSelf.ports == oldSelf.ports", True),
        ("self.set != dyn(3)", True),
    ],
)
def test_values(text: str, value: Any) -> None:
    outcome = evaluate(text)
    assert outcome.error is None
    assert outcome.value == value


def test_a_set_is_compared_with_lists_only() -> None:
    assert evaluate("dyn(self.set) == dyn(3)").error == "no such overload"
    assert evaluate("dyn(self.set) == null").value is False


def test_properties_without_a_type_are_not_accessible() -> None:
    schema = schema_type(SCHEMA)
    assert schema is not None
    assert "hidden" not in schema.fields


def test_documents_are_not_changed() -> None:
    before = repr(NEW)
    evaluate("self.set + ['z'] == self.set || self.ports.map(p, p.name).size() > 5")
    assert repr(NEW) == before
