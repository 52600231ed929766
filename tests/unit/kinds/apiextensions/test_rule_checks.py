"""Rules in schemas: compile errors and cost limits, recorded from upstream."""

from __future__ import annotations

from typing import Any

import pytest

from setpoint.kinds.apiextensions import rule_validation, schema_rules
from setpoint.kinds.apiextensions.schema_rules import validate_schema

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
RULE = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0]"
ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


def errors(properties: dict[str, Any], *rules: str | dict[str, Any]) -> list[str]:
    written = [rule if isinstance(rule, dict) else {"rule": rule} for rule in rules]
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": written}
    found: list[Any] = []
    validate_schema({"type": "object", "properties": {"spec": spec}}, False, "spec.validation", found)
    return [error.message() for error in found]


def test_valid_rules_have_no_errors() -> None:
    properties = {
        "a": INTEGER,
        "when": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "a-b": STRING,
    }
    assert errors(properties, "self.a > 1", "self.when > timestamp('2020-01-01T00:00:00Z')") == []
    assert errors(properties, "self.port == 5 || self.port == '5%'", "self.a__dash__b != ''") == []
    assert errors(properties, {"rule": "self.a >= oldSelf.a", "messageExpression": "self.a == 1 ? 'a' : 'b'"}) == []
    optional = "oldSelf.hasValue() ? self.a > oldSelf.value().a : true"
    assert errors(properties, {"rule": optional, "optionalOldSelf": True}) == []


def test_a_rule_must_return_a_bool() -> None:
    (message,) = errors({"a": INTEGER}, "self.a")
    assert message.startswith(f"{RULE}.rule: Invalid value: ")
    assert message.endswith(": cel expression must evaluate to a bool")
    (message,) = errors({"a": INTEGER}, {"rule": "self.a > 1", "messageExpression": "self.a"})
    assert message.endswith(": messageExpression must evaluate to a string")


def test_unknown_fields_in_rules_are_errors() -> None:
    (message,) = errors({"a": INTEGER}, "self.x > 1")
    assert message.endswith("compilation failed: ERROR: <input>:1:5: undefined field 'x'\n | self.x > 1\n | ....^")


def test_old_self_must_be_used_where_it_is_optional() -> None:
    (message,) = errors({"a": INTEGER}, {"rule": "self.a > 1", "optionalOldSelf": True})
    assert message == f"{RULE}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"


def test_old_self_is_not_available_inside_an_uncorrelatable_list() -> None:
    item = {
        "type": "object",
        "properties": {"n": INTEGER},
        "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n"}],
    }
    (message,) = errors({"l": {"type": "array", "maxItems": 5, "items": item}}, "true")
    path = "spec.validation.openAPIV3Schema.properties[spec].properties[l]"
    assert message == (
        f'{path}.items.x-kubernetes-validations[0].rule: Invalid value: "self.n >= oldSelf.n": oldSelf cannot be used '
        f"on the uncorrelatable portion of the schema within {path}"
    )


def test_a_rule_of_unbounded_cost_is_rejected() -> None:
    texts = {"type": "array", "items": STRING}
    messages = errors({"l": texts}, "self.l.all(x, self.l.all(y, x == y))")
    assert messages == [
        f"{RULE}.rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {ADVICE}",
        f"{RULE}.rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 "
        "schema",
        "spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire "
        f"OpenAPIv3 schema exceeds budget by factor of more than 100x {ADVICE}",
    ]
    bounded = {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 30}}
    assert errors({"l": bounded}, "self.l.all(x, self.l.all(y, x == y))") == []


def test_the_whole_resource_has_a_name_and_a_kind() -> None:
    rules = [{"rule": "self.metadata.name.startsWith('a') && self.kind != ''"}, {"rule": "self.metadata.labels != {}"}]
    found: list[Any] = []
    validate_schema({"type": "object", "x-kubernetes-validations": rules}, False, "spec.validation", found)
    (message,) = [error.message() for error in found]
    assert "x-kubernetes-validations[1].rule: " in message
    assert "undefined field 'labels'" in message


def test_each_compiled_rule_is_freed_after_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing many of them at once would hold the interpreter lock for long."""
    made: list[list[Any]] = []
    remaining: list[int] = []
    compile_rules, check_rule = rule_validation.compile_rules, schema_rules._check_rule

    def recorded(*args: Any) -> list[Any]:
        made.append(compile_rules(*args))
        return made[-1]

    def checked(compiled: Any, path: str, *args: Any) -> None:
        remaining.append(len(made[-1]))
        assert path.endswith(f"[{len(remaining) - 1}]")
        check_rule(compiled, path, *args)

    monkeypatch.setattr(rule_validation, "compile_rules", recorded)
    monkeypatch.setattr(schema_rules, "_check_rule", checked)
    assert errors({"a": INTEGER}, *(f"self.a > {number}" for number in range(3))) == []
    assert remaining == [2, 1, 0]
