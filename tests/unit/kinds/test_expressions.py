"""Errors of expressions in policies, match conditions and selectors, recorded from upstream."""

from __future__ import annotations

import pytest

from setpoint.kinds.expressions import Purpose, Usage, check_expression, expression_errors

VALIDATION = Usage(Purpose.VALIDATION, has_authorizer=True)


@pytest.mark.parametrize(
    "text",
    [
        "object.spec.replicas > 3",
        "request.userInfo.groups.exists(g, g == 'x')",
        "request.userInfo.extra['a'][0] == 'x'",
        "namespaceObject.metadata.labels.x == 'y'",
        "oldObject == null",
        "authorizer.group('apps').resource('deployments').check('get').allowed()",
        "authorizer.requestResource.check('x').allowed()",
        "quantity(object.x).isGreaterThan(quantity('1'))",
        "object.spec.containers.all(c, c.image.contains('/'))",
        "'%s has %d'.format([object.metadata.name, 3]) != ''",
    ],
)
def test_valid_expressions_have_no_errors(text: str) -> None:
    assert check_expression(text, VALIDATION) == []


@pytest.mark.parametrize(
    ("text", "usage", "problem"),
    [
        ("object.spec", VALIDATION, "must evaluate to bool but got dyn"),
        ("request.userInfo", VALIDATION, "must evaluate to bool but got kubernetes.UserInfo"),
        (
            "request.foo",
            VALIDATION,
            "compilation failed: ERROR: <input>:1:8: undefined field 'foo'\n | request.foo\n | .......^",
        ),
        (
            "params.x == 1",
            VALIDATION,
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n"
            " | params.x == 1\n | ^",
        ),
        (
            "variables.a == 1",
            VALIDATION,
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n"
            " | variables.a == 1\n | ^",
        ),
        (
            "[1, 2].includes(1)",  # newer than what the previous release understands
            VALIDATION,
            "compilation failed: ERROR: <input>:1:16: undeclared reference to 'includes' (in container '')\n"
            " | [1, 2].includes(1)\n | ...............^",
        ),
        ("1", Usage(Purpose.AUDIT_ANNOTATION), "must evaluate to one of [string null_type] but got int"),
        ("1", Usage(Purpose.JSON_PATCH), "must evaluate to list(JSONPatch) but got int"),
        ("[]", Usage(Purpose.JSON_PATCH), "must evaluate to list(JSONPatch) but got list(dyn)"),
        ("Object.spec{}", Usage(Purpose.APPLY_CONFIGURATION), "must evaluate to Object but got Object.spec"),
        ("device.driver", Usage(Purpose.DEVICE_SELECTOR), "must evaluate to bool or the unknown type, not string"),
        (
            "device.attributes['a'].b.all(x, x == 1)",
            Usage(Purpose.DEVICE_SELECTOR),
            "compilation failed: ERROR: <input>:1:23: expression of type 'any' cannot be range of a comprehension "
            "(must be list, map, or dynamic)\n | device.attributes['a'].b.all(x, x == 1)\n"
            " | ......................^",
        ),
    ],
)
def test_errors(text: str, usage: Usage, problem: str) -> None:
    assert check_expression(text, usage) == [problem]


def test_variables_have_the_types_of_their_expressions() -> None:
    usage = Usage(Purpose.VALIDATION, variables={"a": "[1, 2]", "b": "variables.a.size()"})
    assert check_expression("variables.b > 1", usage) == []
    (problem,) = check_expression("variables.a.all(i, i == 'x')", usage)
    assert "found no matching overload for '_==_' applied to '(int, string)'" in problem
    broken = Usage(Purpose.VALIDATION, variables={"a": "nope"})
    assert check_expression("variables.a == 1", broken) == []


def test_patches_are_built_of_objects_and_operations() -> None:
    assert check_expression("Object{spec: Object.spec{replicas: 1}}", Usage(Purpose.APPLY_CONFIGURATION)) == []
    text = "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: {'a': 1}}]"
    assert check_expression(text, Usage(Purpose.JSON_PATCH)) == []


def test_selectors_declare_variables_and_have_a_cost_limit() -> None:
    usage = Usage(Purpose.DEVICE_SELECTOR)
    assert check_expression("cel.bind(d, device.attributes['x'], d.a && d.b)", usage) == []
    text = (
        "device.attributes.all(k, device.attributes.all(l, device.attributes.all(m, device.attributes.all(n, k == n))))"
    )
    (error,) = expression_errors(text, text, usage, "spec.selectors[0].cel.expression")
    assert error.message() == "spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"


def test_a_constant_that_fails_to_evaluate_is_an_internal_error() -> None:
    (error,) = expression_errors("int('x') == 1", "int('x') == 1", VALIDATION, "spec.x")
    assert error.body() == "Internal error: program instantiation failed: type conversion error from 'string' to 'int'"


def test_stored_expressions_may_use_newer_libraries() -> None:
    assert check_expression("[1, 2].includes(1)", Usage(Purpose.VALIDATION, stored=True)) == []
