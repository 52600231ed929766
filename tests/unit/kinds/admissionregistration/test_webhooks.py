from typing import Any

import pytest

RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def hook(**fields: Any) -> dict[str, Any]:
    base = {
        "name": "a.b.c",
        "clientConfig": {"url": "https://x/y"},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }
    return {"webhooks": [{key: value for key, value in base.items() if value is not None}]}


@pytest.fixture(params=["Validating", "Mutating"])
def hooks(lifecycle: Any, request: pytest.FixtureRequest) -> Any:
    return lifecycle("admissionregistration.k8s.io/v1", f"{request.param}WebhookConfiguration")


def test_defaults(hooks: Any) -> None:
    (found,) = hooks.created(hook(rules=[RULE], clientConfig={"service": {"name": "s", "namespace": "n"}}))["webhooks"]
    assert (found["failurePolicy"], found["matchPolicy"], found["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert found["rules"][0]["scope"] == "*" and found["clientConfig"]["service"]["port"] == 443
    assert found.get("reinvocationPolicy") == ("Never" if hooks.strategy.mutating else None)


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        (
            {"name": "a"},
            ['webhooks[0].name: Invalid value: "a": should be a domain with at least three segments separated by dots'],
        ),
        ({"clientConfig": {}}, ["webhooks[0].clientConfig: Required value: exactly one of url or service is required"]),
        (
            {"clientConfig": {"url": "http://x"}},
            [
                "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
                "desired format: https://host[/path]"
            ],
        ),
        (
            {"clientConfig": {"url": "https://x:y"}},
            [
                'webhooks[0].clientConfig.url: Required value: url must be a valid URL: parse "https://x:y": invalid '
                'port ":y" after host; '
                "desired format: https://host[/path]"
            ],
        ),
        ({"sideEffects": None}, ["webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun"]),
        (
            {"timeoutSeconds": 31},
            ["webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"],
        ),
        (
            {"admissionReviewVersions": ["v2"]},
            ['webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1'],
        ),
        (
            {"rules": [{**RULE, "resources": ["pods/*", "pods/log"]}]},
            [
                "webhooks[0].rules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not "
                "specify pods/log"
            ],
        ),
        (
            {"matchConditions": [{"name": "x", "expression": " "}]},
            ["webhooks[0].matchConditions[0].expression: Required value"],
        ),
        # A service without a name is reported to lack a namespace, as in the reference.
        (
            {"clientConfig": {"service": {"namespace": "n"}}},
            ["webhooks[0].clientConfig.service.namespace: Required value"],
        ),
    ],
)
def test_errors(hooks: Any, fields: dict[str, Any], errors: list[str]) -> None:
    assert hooks.errors(hook(**fields)) == errors


def test_names_reserved_for_static_files(hooks: Any) -> None:
    _, errors, _ = hooks.create(hook(), name="x.static.k8s.io")
    assert "reserved for static manifest-based configurations" in errors[0]


def test_changed_webhooks_increment_the_generation(hooks: Any) -> None:
    old = hooks.created(hook())
    assert hooks.update(old, metadata={"labels": {"a": "b"}})[0]["metadata"]["generation"] == 1
    assert hooks.update(old, webhooks=[])[0]["metadata"]["generation"] == 2


def test_rules_for_reviews_cause_a_warning(hooks: Any) -> None:
    rule = {**RULE, "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"]}
    (warning,) = hooks.warnings(hook(rules=[rule]))
    assert warning.startswith("webhooks[0].rules[0]: tokenreviews.authentication.k8s.io is excluded")
