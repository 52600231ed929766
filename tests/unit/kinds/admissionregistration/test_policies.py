from typing import Any

import pytest

RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
GROUP = "admissionregistration.k8s.io/v1"


def policy(**spec: Any) -> dict[str, Any]:
    base = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}], **spec}
    return {"spec": {key: value for key, value in base.items() if value is not None}}


@pytest.fixture
def policies(lifecycle: Any) -> Any:
    return lifecycle(GROUP, "ValidatingAdmissionPolicy")


def test_defaults(policies: Any) -> None:
    spec = policies.created(policy())["spec"]
    assert spec["failurePolicy"] == "Fail"
    constraints = spec["matchConstraints"]
    assert (constraints["matchPolicy"], constraints["namespaceSelector"]) == ("Equivalent", {})


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"matchConstraints": None}, ["spec.matchConstraints: Required value"]),
        (
            {"validations": None},
            [
                "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                "spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item",
            ],
        ),
        (
            {"paramKind": {"apiVersion": "a/b/c", "kind": "X"}},
            ['spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
        ),
        (
            {"variables": [{"name": "for", "expression": "1"}]},
            ['spec.variables[0].name: Invalid value: "for": must be a valid CEL identifier'],
        ),
        (
            {"validations": [{"expression": "true", "message": "a\nb"}]},
            ['spec.validations[0].message: Invalid value: "a\\nb": must not contain line breaks'],
        ),
        (
            {"validations": [{"expression": "true", "reason": "X"}]},
            [
                'spec.validations[0].reason: Unsupported value: "X": supported values: "Forbidden", "Invalid", '
                '"RequestEntityTooLarge"'
            ],
        ),
        (
            {"auditAnnotations": [{"key": "k", "valueExpression": "'x'"}] * 2},
            ['spec.auditAnnotations[1].key: Duplicate value: "k"'],
        ),
    ],
)
def test_errors(policies: Any, spec: dict[str, Any], errors: list[str]) -> None:
    assert policies.errors(policy(**spec)) == errors


def test_mutations(lifecycle: Any) -> None:
    policies = lifecycle(GROUP, "MutatingAdmissionPolicy")

    def errors(*mutations: dict[str, Any]) -> list[str]:
        spec = {"validations": None, "reinvocationPolicy": "Never", "mutations": list(mutations)}
        found: list[str] = policies.errors(policy(**spec))
        return found

    patch = {"expression": "[JSONPatch{op: 'remove', path: '/spec/paused'}]"}
    assert errors({"patchType": "JSONPatch", "jsonPatch": patch}) == []
    assert errors({"patchType": "JSONPatch", "applyConfiguration": {"expression": "x"}}) == [
        "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
        'spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": '
        "must not be specified when patchType is JSONPatch",
    ]
    assert errors() == ["spec.mutations: Required value: mutations must contain at least one item"]


def test_bindings(lifecycle: Any) -> None:
    bindings = lifecycle(GROUP, "ValidatingAdmissionPolicyBinding")
    assert bindings.errors({"spec": {"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}}) == [
        "spec.policyName: Required value",
        "spec.validationActions: Required value",
    ]
    (error,) = bindings.errors({"spec": {"policyName": "p", "validationActions": ["Deny", "Warn"]}})
    assert "must not contain both Deny and Warn" in error
    obj = bindings.created(
        {
            "spec": {
                "policyName": "p",
                "validationActions": ["Deny"],
                "paramRef": {"selector": {"matchLabels": {"a": "b"}}, "parameterNotFoundAction": "Deny"},
            }
        }
    )
    assert bindings.cells(obj)["ParamRef"] == (
        "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}"
    )
