"""Features of the engine for policies: lazy variables, the authorizer, and results as JSON."""

from __future__ import annotations

from functools import partial
from typing import Any

from setpoint.kinds.expression_environments import admission_environment
from setpoint.meta.cel import (
    DYN,
    INT,
    AuthorizerValue,
    CelError,
    Check,
    Decision,
    LazyMap,
    ResourceCheckValue,
    misnamed_types,
    to_json,
)


def test_variables_are_computed_once_and_only_if_used() -> None:
    calls: list[str] = []

    def compute(name: str, value: Any) -> Any:
        calls.append(name)
        if value is None:
            raise CelError('composited variable "bad" fails to evaluate: no such key: x')
        return value

    variables = LazyMap({name: partial(compute, name, value) for name, value in {"a": 2, "b": 3, "bad": None}.items()})
    environment = admission_environment(variables={"a": INT, "b": INT, "bad": DYN})
    bindings = {"variables": variables}
    assert environment.compile("variables.a + variables.a == 4").evaluate(bindings).value is True
    assert calls == ["a"]
    outcome = environment.compile("variables.bad == 1").evaluate(bindings)
    assert outcome.error == 'composited variable "bad" fails to evaluate: no such key: x'
    assert environment.compile("variables.bad == 1 || true").evaluate(bindings).value is True
    assert calls == ["a", "bad"]


def test_the_authorizer_gets_the_checks_of_the_expression() -> None:
    asked: list[Check] = []

    def authorize(check: Check) -> Decision:
        asked.append(check)
        return Decision(check.verb == "get", reason="because")

    request = ResourceCheckValue(authorize, Check(is_resource=True, group="apps", resource="deployments", name="web"))
    bindings = {"authorizer": AuthorizerValue(authorize), "authorizer.requestResource": request}
    environment = admission_environment(has_authorizer=True)

    def evaluate(text: str) -> Any:
        outcome = environment.compile(text).evaluate(bindings)
        assert outcome.error is None
        return outcome

    pod = "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').namespace('x').name('y')"
    outcome = evaluate(f"{pod}.check('get').allowed()")
    assert outcome.value is True
    assert outcome.cost > 350_000
    assert asked[-1] == Check(
        verb="get", is_resource=True, resource="pods", namespace="x", name="y", service_account=("ns", "sa")
    )
    assert evaluate("authorizer.path('/healthz').check('post').allowed()").value is False
    assert asked[-1] == Check(verb="post", path="/healthz")
    assert evaluate("authorizer.requestResource.check('get').reason()").value == "because"
    assert asked[-1].name == "web"
    failed = environment.compile("authorizer.path('').check('get').allowed()").evaluate(bindings)
    assert failed.error == "path must not be empty"


def test_objects_and_patches_become_json() -> None:
    environment = admission_environment(patch_types=True)

    def evaluate(text: str) -> Any:
        return environment.compile(text).evaluate({"object": {"spec": {"replicas": 2}}}).value

    built = evaluate(
        "Object{spec: Object.spec{replicas: object.spec.replicas + 1, ?paused: optional.none(), "
        "template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {'a': 'b'}}}}}"
    )
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert to_json(built) == {"spec": {"replicas": 3, "template": labels}}
    assert misnamed_types(built) == []
    (problem,) = misnamed_types(evaluate("Object{spec: Object.status{}}"))
    assert problem == (
        'unexpected type name "Object.status", expected "Object.spec", which matches field name path from root Object '
        "type"
    )
    patch = evaluate("[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 'x'}]")
    assert to_json(patch) == [{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "x"}]
