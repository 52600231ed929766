"""Pruning and defaulting of custom resources: examples and properties."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from effort import tries
from hypothesis import given, settings
from hypothesis import strategies as st

from setpoint.kinds.apiextensions.correlation import Correlated
from setpoint.kinds.apiextensions.custom_strategy import custom_type
from setpoint.kinds.apiextensions.schema_rules import has_unknown
from setpoint.kinds.apiextensions.schema_values import compile_schema, validate_value
from setpoint.kinds.apiextensions.version_order import deprecation_warning, version_rank
from setpoint.meta.decode import decode

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "y"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=10
)
_DEFAULTS = {"string": "d", "integer": 7, "boolean": True}


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    """Generate structural schemas with valid defaults."""
    kinds = ["string", "integer", "boolean", "any"] + (["object", "map", "array"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    schema: dict[str, Any] = {"nullable": True} if draw(st.booleans()) else {}
    if kind == "any":
        return schema | {"x-kubernetes-preserve-unknown-fields": True}
    schema["type"] = "object" if kind == "map" else kind
    if kind == "object":
        schema["properties"] = draw(st.dictionaries(NAMES, schemas(depth - 1), max_size=3))
        if draw(st.booleans()):
            schema["x-kubernetes-preserve-unknown-fields"] = True
        if draw(st.booleans()):
            schema["default"] = {}
    elif kind == "map":
        schema["additionalProperties"] = draw(schemas(depth - 1))
    elif kind == "array":
        schema["items"] = draw(schemas(depth - 1))
    elif draw(st.booleans()):
        schema["default"] = _DEFAULTS[kind]
    return schema


def _root(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": schema}}


def _decoded(schema: dict[str, Any], value: Any) -> Any:
    found: dict[str, Any] = decode(custom_type(_root(schema)), {"metadata": {"name": "x"}, "spec": value})
    return found.get("spec", "<absent>")


@settings(max_examples=tries(100, 300))
@given(schemas(), VALUES)
def test_pruning_and_defaulting_are_idempotent(schema: dict[str, Any], value: Any) -> None:
    before = deepcopy(value)
    once = _decoded(schema, value)
    assert value == before
    if once != "<absent>":
        assert _decoded(schema, once) == once


@settings(max_examples=tries(100, 300))
@given(schemas(), VALUES)
def test_pruning_leaves_no_unknown_field(schema: dict[str, Any], value: Any) -> None:
    once = _decoded(schema, value)
    if once != "<absent>":
        assert not has_unknown(once, schema)


@settings(max_examples=tries(100, 300))
@given(schemas(), VALUES)
def test_exactly_the_pruned_fields_are_reported(schema: dict[str, Any], value: Any) -> None:
    strict: list[str] = []
    type_ = custom_type(_root(schema))
    decode(type_, {"metadata": {"name": "x"}, "spec": value}, strict=strict)
    assert bool(strict) == has_unknown(value, schema)


@settings(max_examples=tries(80, 300))
@given(schemas(), VALUES)
def test_without_defaults_nothing_is_added(schema: dict[str, Any], value: Any) -> None:
    def keys(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {f"{key}.{below}" for key, one in value.items() for below in keys(one) | {""}}
        return (
            {f"{i}.{below}" for i, one in enumerate(value) for below in keys(one)} if isinstance(value, list) else set()
        )

    found = decode(custom_type(_root(schema), defaults=False), {"spec": value})
    assert keys(found.get("spec")) <= keys(value)


@settings(max_examples=tries(80, 300))
@given(schemas(), VALUES, VALUES)
def test_ratcheting_never_rejects_what_a_create_accepts(schema: dict[str, Any], value: Any, old: Any) -> None:
    """Ratcheting never adds errors, and an unchanged value has none."""
    check = compile_schema(schema)
    fresh: list[Any] = []
    validate_value(check, value, "spec", fresh)
    after: list[Any] = []
    validate_value(check, value, "spec", after, Correlated(value, old, schema))
    assert len(after) <= len(fresh)
    same: list[Any] = []
    validate_value(check, value, "spec", same, Correlated(value, deepcopy(value), schema))
    if not has_unknown(value, schema | {"x-kubernetes-preserve-unknown-fields": False}):
        assert len(same) <= len(fresh)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "string"}, {"a": {"b": 1}}, {}),
        ({"type": "string"}, [{"a": 1}, 2], [{}, 2]),
        ({"type": "object", "additionalProperties": True}, {"a": {"b": 1}, "c": 1}, {"a": {}, "c": 1}),
        ({"type": "array", "items": {"type": "string", "default": "d"}}, ["a", None], ["a", "d"]),
        ({"type": "array", "items": {"type": "string"}}, ["a", None], ["a", None]),
        ({"type": "object", "additionalProperties": {"type": "string", "default": "d"}}, {"a": None}, {"a": "d"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": None}, {}),
        ({"type": "object", "additionalProperties": {"type": "string", "nullable": True}}, {"a": None}, {"a": None}),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {"a": None}, {}),
        ({"type": "object", "properties": {"a": {"type": "string", "default": "d"}}}, {"a": None}, {"a": "d"}),
        (
            {"type": "object", "properties": {"a": {"type": "string", "default": "d", "nullable": True}}},
            {"a": None},
            {"a": None},
        ),
        ({"type": "number"}, 3.0, 3),
        ({"x-kubernetes-int-or-string": True}, "1", "1"),
    ],
)
def test_examples(schema: dict[str, Any], value: Any, expected: Any) -> None:
    found = _decoded(schema, value)
    assert (found, type(found)) == (expected, type(expected))


def test_versions_are_ranked() -> None:
    versions = ["v1alpha1", "v2", "foo1", "v10", "v1beta2", "v1", "v11alpha2", "bar", "v1beta1"]
    assert sorted(versions, key=version_rank) == [
        "v10",
        "v2",
        "v1",
        "v1beta2",
        "v1beta1",
        "v11alpha2",
        "v1alpha1",
        "bar",
        "foo1",
    ]


def test_deprecation_warning_names_the_preferred_version() -> None:
    def one(name: str, deprecated: bool) -> dict[str, Any]:
        return {"name": name, "served": True, "deprecated": deprecated}

    spec = {"group": "g", "names": {"kind": "K"}, "versions": [one("v1", True), one("v2", False), one("v3", False)]}
    assert deprecation_warning(spec, "v1") == "g/v1 K is deprecated; use g/v3 K"
    spec["versions"] = [one("v1", True), one("v1beta1", False)]
    assert deprecation_warning(spec, "v1") == "g/v1 K is deprecated"
    assert deprecation_warning(spec, "v1beta1") == ""
