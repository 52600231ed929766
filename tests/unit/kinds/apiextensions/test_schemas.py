from typing import Any

import pytest

from setpoint.kinds.apiextensions.schema_paths import PathError, follow
from setpoint.kinds.apiextensions.schema_rules import has_unknown, validate_schema
from setpoint.kinds.apiextensions.schema_scalars import format_test
from setpoint.kinds.apiextensions.schema_values import compile_schema, validate_value
from setpoint.meta.field import Errors

LIST_TYPE, KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        ({}, ["type: Required value: must not be empty at the root"]),
        ({"type": "object", "nullable": True}, ["nullable: Forbidden: nullable cannot be true at the root"]),
        (of(a={}), ["properties[a].type: Required value: must not be empty for specified object fields"]),
        (
            of(a={"type": "null"}),
            [
                'properties[a].type: Unsupported value: "null": supported values: "array", "boolean", "integer", '
                '"number", "object", "string"',
                "properties[a].type: Forbidden: type cannot be set to null, use nullable as an alternative",
            ],
        ),
        (of(a={"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}), []),
        (
            of(metadata={"type": "object", "description": "x"}),
            [
                "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but "
                "metadata is "
                "implicitly specified"
            ],
        ),
        (
            {**of(a={"type": "string"}), "anyOf": [{"properties": {"b": {}}}]},
            ["properties[b]: Required value: because it is defined in x.openAPIV3Schema.anyOf[0].properties[b]"],
        ),
        (
            {**of(a={"type": "string"}), "oneOf": [{"properties": {"a": {"type": "string"}}}]},
            ["oneOf[0].properties[a].type: Forbidden: must be empty to be structural"],
        ),
        (
            of(a={"type": "string", "pattern": "(("}),
            [
                'properties[a].pattern: Invalid value: "((": must be a valid regular expression, but isn\'t: error '
                "parsing regexp: "
                "missing closing ): `((`"
            ],
        ),
        (
            of(a={"type": "array", LIST_TYPE: "set", "items": {"type": "object"}}),
            [
                "properties[a].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with "
                "x-kubernetes-list-type=set"
            ],
        ),
        (
            of(a={"type": "array", LIST_TYPE: "map", KEYS: ["k"], "items": of(k={"type": "string"})}),
            [
                "properties[a].items.properties[k].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must "
                "have a default or be a required property"
            ],
        ),
        (
            of(a={"type": "string", "default": 1}),
            ['properties[a].default: Invalid value: "integer":  in body must be of type string: "integer"'],
        ),
        (
            of(a={**of(b={"type": "string"}), "default": {"z": 1}}),
            ['properties[a].default: Invalid value: {"z":1}: must not have unknown fields'],
        ),
        (
            of(spec={"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".zz"}]}),
            ['properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: ".zz": must be a valid path'],
        ),
    ],
)
def test_schemas(schema: dict[str, Any], errors: list[str]) -> None:
    found: Errors = []
    validate_schema(schema, False, "x", found)
    assert [error.message().removeprefix("x.openAPIV3Schema.") for error in found] == errors


@pytest.mark.parametrize(
    ("schema", "value", "errors"),
    [
        ({"type": "integer"}, 2.0, []),
        ({"type": "number"}, 1, []),
        ({"type": "string"}, True, ['Invalid value: "boolean": a in body must be of type string: "boolean"']),
        ({"type": "string", "maxLength": 2}, "abc", ["Too long: may not be more than 2 bytes"]),
        ({"type": "string", "enum": ["x", "y"]}, "z", ['Unsupported value: "z": supported values: "x", "y"']),
        (
            {"type": "integer", "maximum": 5, "exclusiveMaximum": True},
            5,
            ["Invalid value: 5: a in body should be less than 5"],
        ),
        (
            {"type": "array", "maxItems": 1, "items": {"type": "string"}},
            ["p", "q"],
            ["Too many: 2: must have at most 1 item"],
        ),
        ({"type": "integer", "format": "int64"}, {}, ['Invalid value: "": a in body must be of type int64: ""']),
        (
            {"type": "integer", "format": "int64"},
            1.5,
            [
                'Invalid value: "float64": a in body must be of type int64: "float64"',
                'Invalid value: "": Checked value must be of type integer with format int64 in a',
            ],
        ),
        (
            {"type": "integer", "format": "int64"},
            "1",
            ['Invalid value: "string": a in body must be of type integer: "string"'],
        ),
        ({"type": "string", "format": "ipv4"}, 1, ['Invalid value: "int64": a in body must be of type ipv4: "int64"']),
        (
            {"type": "string", "format": "ipv4"},
            "1.2.3",
            ['Invalid value: "1.2.3": a in body must be of type ipv4: "1.2.3"'],
        ),
        (
            {"x-kubernetes-int-or-string": True},
            [],
            ['Invalid value: "array": a in body must be of type integer,string: "array"'],
        ),
        # The errors of the alternative that passed most tests are reported.
        (
            {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 5}]},
            1,
            [
                'Invalid value: "": "a" must validate one and only one schema (oneOf). Found none valid',
                "Invalid value: 1: a in body should be greater than or equal to 5",
            ],
        ),
    ],
)
def test_values(schema: dict[str, Any], value: Any, errors: list[str]) -> None:
    found: Errors = []
    validate_value(compile_schema(of(a=schema)), {"a": value}, "", found)
    assert [error.body() for error in found] == errors


def test_field_paths_of_errors() -> None:
    found: Errors = []
    schema = of(spec={**of(l={"type": "array", "items": of(n={"type": "string"})}), "required": ["m"]})
    validate_value(compile_schema(schema), {"spec": {"l": [{"n": 1}]}}, "", found)
    assert [error.field for error in found] == ["spec.l[0].n", "spec.m"]


def test_a_hostile_pattern_is_matched_in_linear_time() -> None:
    check = compile_schema({"type": "string", "pattern": "^(a+)+$"})
    found: Errors = []
    validate_value(check, "a" * 5000 + "!", "p", found)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2020-01-02T03:04:05Z", "2020-01-02 03:04:05"),
        ("duration", "5 days", "1x"),
        ("byte", "YWJj", "!!"),
        ("uuid", "a1a1a1a1-b2b2-c3c3-d4d4-e5e5e5e5e5e5", "x"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("hostname", "a.example.com", "-"),
        ("isbn13", "978-0321751041", "978-0321751042"),
        ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
        ("k8s-short-name", "abc", "a.b"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    test = format_test(name)
    assert test is not None and test(good) and not test(bad)


def test_paths() -> None:
    schema = of(spec=of(m={"type": "object", "additionalProperties": {"type": "integer"}}))
    assert follow(".spec.m['a.b']", schema) == (["spec", "m", "a.b"], {"type": "integer"})
    with pytest.raises(PathError, match="does not refer to a valid field"):
        follow(".spec.x", schema)
    with pytest.raises(PathError, match="array notation is not allowed"):
        follow(".spec['m']", schema, brackets=False)


def test_pruning_removes_unspecified_fields() -> None:
    free = {"x-kubernetes-preserve-unknown-fields": True}
    schema = of(a={"type": "array", "items": of(b={"type": "string"})}, c=free)
    assert not has_unknown({"a": [{"b": "x"}], "c": {"any": 1}}, schema)
    assert has_unknown({"a": [{"z": "x"}]}, schema)
