"""ValidatingAdmissionPolicies, through the API."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from admission_policies import APPS, CORE, REGISTRATION, binding, config, deployment, enforce, policy, rule
from custom_resource_harness import CustomResourceHarness, foo, of, version
from server_harness import LIMITED_TOKEN

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain

MAPS = f"{CORE}/configmaps"


async def test_a_denied_write_has_upstreams_message(harness: CustomResourceHarness) -> None:
    await enforce(harness, policy("p", "object.metadata.name != 'bad'"))
    assert (await harness.post(MAPS, config("good"))).status == 201
    reply = await harness.post(MAPS, config("bad"))
    message = "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: "
    message += "failed expression: object.metadata.name != 'bad'"
    assert reply.status == 422
    assert reply.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "Invalid",
        "code": 422,
        "message": f'configmaps "bad" is forbidden: {message}',
        "details": {"name": "bad", "kind": "configmaps", "causes": [{"message": message}]},
    }


@pytest.mark.parametrize(
    "validation, status, reason, text",
    [
        ({"message": " no way "}, 422, "Invalid", "no way"),
        ({"message": "m", "messageExpression": "'no ' + object.metadata.name"}, 422, "Invalid", "no c"),
        ({"message": "m", "messageExpression": "string(object.nothing)"}, 422, "Invalid", "m"),
        ({"message": "m", "messageExpression": r"'a\nb'"}, 422, "Invalid", "m"),
        ({"message": "m", "messageExpression": "' '"}, 422, "Invalid", "m"),
        ({"reason": "Forbidden"}, 403, "Forbidden", "failed expression: false"),
        ({"reason": "RequestEntityTooLarge"}, 413, "RequestEntityTooLarge", "failed expression: false"),
    ],
)
async def test_message_and_reason(
    harness: CustomResourceHarness, validation: Any, status: int, reason: str, text: str
) -> None:
    await enforce(harness, policy("p", {"expression": "false", **validation}))
    reply = await harness.post(MAPS, config())
    assert (reply.status, reply.json["reason"]) == (status, reason)
    assert reply.message.endswith(f"denied request: {text}")


async def test_warn_and_audit_do_not_deny(harness: CustomResourceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Attributes] = []
    plugin = next(one for one in harness.api.resources.env.admission.plugins if one.name == "ValidatingAdmissionPolicy")
    validate = plugin.validate

    async def watched(attrs: Attributes) -> None:
        seen.append(attrs)
        await validate(attrs)

    monkeypatch.setattr(plugin, "validate", watched)
    notes = [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}]
    await enforce(harness, policy("p", "true", "false", auditAnnotations=notes), "Warn", "Audit")
    reply = await harness.post(MAPS, config())
    assert reply.status == 201
    text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': failed expression: false"
    assert reply.warnings == [f'299 - "{text}"']
    audit = seen[-1].audit
    assert audit["p/who"] == "by admin"
    assert orjson.loads(audit["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "failed expression: false",
            "policy": "p",
            "binding": "p-b",
            "expressionIndex": 1,
            "validationActions": ["Warn", "Audit"],
        }
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "object.data.k == 'v' && oldObject == null",
        "object.kind == 'ConfigMap' && object.apiVersion == 'v1'",
        "request.operation == 'CREATE' && request.name == 'c' && request.namespace == 'default'",
        "request.kind.group == '' && request.kind.version == 'v1' && request.kind.kind == 'ConfigMap'",
        "request.resource.resource == 'configmaps' && request.requestResource.resource == 'configmaps'",
        "!request.dryRun && !has(request.subResource)",
        "request.userInfo.username == 'admin' && 'system:masters' in request.userInfo.groups",
        "request.options.kind == 'CreateOptions' && request.options.fieldManager == 'me'",
        "namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Active'",
        "variables.twice == 'vv' && variables.again == 'vvvv'",
        "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
        "authorizer.requestResource.check('create').allowed()",
        "!authorizer.serviceAccount('default', 'x').group('').resource('pods').check('get').allowed()",
        "authorizer.path('/healthz').check('get').allowed()",
    ],
)
async def test_variables_of_expressions(harness: CustomResourceHarness, expression: str) -> None:
    variables = [
        {"name": "twice", "expression": "object.data.k + object.data.k"},
        {"name": "again", "expression": "variables.twice + variables.twice"},
    ]
    await enforce(harness, policy("p", expression, variables=variables))
    reply = await harness.post(f"{MAPS}?fieldManager=me", config())
    assert reply.status == 201, reply.message


async def test_an_update_and_a_deletion_see_the_old_object(harness: CustomResourceHarness) -> None:
    rules = [rule("configmaps", operations=("*",))]
    rule_text = "oldObject == null || (object == null ? oldObject.data.k != 'keep' : object.data.k != oldObject.data.k)"
    await enforce(harness, policy("p", rule_text, rules=rules))
    await harness.make(MAPS, config(data={"k": "1"}))
    assert (await harness.patch(f"{MAPS}/c", {"data": {"x": "y"}})).status == 422
    assert (await harness.patch(f"{MAPS}/c", {"data": {"k": "keep"}})).status == 200
    assert (await harness.delete(f"{MAPS}/c")).status == 422
    refused = await harness.delete(MAPS)
    assert refused.status == 422 and "p-b" in refused.message
    assert (await harness.patch(f"{MAPS}/c", {"data": {"k": "go"}})).status == 200
    assert (await harness.delete(MAPS)).status == 200


@pytest.mark.parametrize(
    "match, refused",
    [
        ({}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, False),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, True),
        ({"objectSelector": {"matchLabels": {"a": "c"}}}, False),
        ({"excludeResourceRules": [rule("configmaps", resourceNames=["c"])]}, False),
        ({"excludeResourceRules": [rule("configmaps", resourceNames=["d"])]}, True),
        ({"resourceRules": [rule("configmaps", resourceNames=["c"])]}, True),
        ({"resourceRules": [rule("configmaps", resourceNames=["d"])]}, False),
        ({"resourceRules": [rule("configmaps", scope="Namespaced")]}, True),
        ({"resourceRules": [rule("configmaps", scope="Cluster")]}, False),
        ({"resourceRules": [rule("*")]}, True),
        ({"resourceRules": [rule("configmaps", operations=("DELETE",))]}, False),
        ({"resourceRules": [rule("configmaps", group="apps")]}, False),
    ],
)
@pytest.mark.parametrize("where", ["policy", "binding"])
async def test_match_constraints(
    harness: CustomResourceHarness, match: dict[str, Any], refused: bool, where: str
) -> None:
    of_policy: dict[str, Any] = {"match": match} if where == "policy" else {}
    of_binding: dict[str, Any] = {"matchResources": match} if where == "binding" else {}
    await enforce(harness, policy("p", "false", **of_policy), **of_binding)
    reply = await harness.post(MAPS, config(labels={"a": "b"}))
    assert reply.status == (422 if refused else 201)


async def test_namespaces_are_selected_by_their_own_labels(harness: CustomResourceHarness) -> None:
    match = {"namespaceSelector": {"matchLabels": {"strict": "yes"}}}
    await enforce(
        harness, policy("p", "request.namespace != 'n'", rules=[rule("namespaces", scope="Cluster")], match=match)
    )
    made = {"metadata": {"name": "n", "labels": {"strict": "yes"}}}
    assert (await harness.post("/api/v1/namespaces", made)).status == 422
    assert (await harness.post("/api/v1/namespaces", {"metadata": {"name": "n"}})).status == 201


@pytest.mark.parametrize(
    "failure_policy, condition, status",
    [
        ("Fail", "request.userInfo.username != 'admin'", 201),
        ("Fail", "object.data.missing == 'x'", 422),
        ("Ignore", "object.data.missing == 'x'", 201),
        ("Fail", "request.userInfo.username == 'admin'", 422),
    ],
)
async def test_match_conditions(
    harness: CustomResourceHarness, failure_policy: str, condition: str, status: int
) -> None:
    conditions = [{"name": "here", "expression": condition}]
    await enforce(harness, policy("p", "false", matchConditions=conditions, failurePolicy=failure_policy))
    reply = await harness.post(MAPS, config())
    assert reply.status == status
    if "missing" in condition and status == 422:
        assert reply.message.endswith(f"expression '{condition}' resulted in error: no such key: missing")


@pytest.mark.parametrize("failure_policy, status", [("Fail", 422), ("Ignore", 201)])
async def test_failures_deny_unless_ignored(harness: CustomResourceHarness, failure_policy: str, status: int) -> None:
    await enforce(harness, policy("p", "object.spec.x == 1", failurePolicy=failure_policy))
    reply = await harness.post(MAPS, config())
    assert reply.status == status
    if status == 422:
        text = "expression 'object.spec.x == 1' resulted in error: no such key: spec"
        assert reply.message.endswith(f"denied request: {text}")


async def test_a_failing_variable_is_named(harness: CustomResourceHarness) -> None:
    await enforce(harness, policy("p", "variables.v == 1", variables=[{"name": "v", "expression": "object.nothing"}]))
    reply = await harness.post(MAPS, config())
    text = """expression 'variables.v == 1' resulted in error: composited variable "v" fails to evaluate: """
    assert reply.message.endswith(f"{text}no such key: nothing")


async def test_costs_are_limited(harness: CustomResourceHarness) -> None:
    loop = "[1,2,3,4,5,6,7,8,9,0]"
    text = f"{loop}.all(a, {loop}.all(b, {loop}.all(c, {loop}.all(d, {loop}.all(e, {loop}.all(f, true))))))"
    await enforce(harness, policy("p", text))
    reply = await harness.post(MAPS, config())
    assert reply.message.endswith("resulted in error: operation cancelled: actual cost limit exceeded")


# -- parameters -------------------------------------------------------------------------------------------------------


async def test_parameters_by_name_and_selector(harness: CustomResourceHarness) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    text = "object.spec.replicas <= int(params.data.most)"
    made = policy("p", {"expression": text, "messageExpression": "'most ' + params.data.most"}, paramKind=kind)
    made["spec"]["matchConstraints"]["resourceRules"] = [rule("deployments", group="apps")]
    reference = {"name": "limits", "namespace": "other", "parameterNotFoundAction": "Deny"}
    await enforce(harness, made, paramRef=reference)
    bindings = f"{REGISTRATION}/validatingadmissionpolicybindings"
    reply = await harness.post(f"{APPS}/deployments", deployment("d", 1))
    assert reply.message.endswith(
        "with binding 'p-b' denied request: failed to configure binding: "
        "no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    other = "/api/v1/namespaces/other/configmaps"
    await harness.make(other, config("limits", {"most": "3"}))
    assert (await harness.post(f"{APPS}/deployments", deployment("four", 4))).message.endswith("denied request: most 3")
    assert (await harness.post(f"{APPS}/deployments", deployment("three", 3))).status == 201
    # By selector, in the namespace of the request: every one of them counts.
    selected = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Allow"}
    changed = await harness.patch(
        f"{bindings}/p-b", {"spec": {"paramRef": {"name": None, "namespace": None, **selected}}}
    )
    assert changed.status == 200, changed.body
    assert (await harness.post(f"{APPS}/deployments", deployment("four", 4))).status == 201
    await harness.make(MAPS, config("first", {"most": "9"}, labels={"limit": "yes"}))
    await harness.make(MAPS, config("second", {"most": "2"}, labels={"limit": "yes"}))
    assert (await harness.patch(f"{APPS}/deployments/four", {"spec": {"replicas": 5}})).message.endswith("most 2")


async def test_custom_resources_as_parameters(harness: CustomResourceHarness) -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Foo"}
    await enforce(
        harness,
        policy("p", "size(object.data) <= params.spec.most", paramKind=kind),
        paramRef={"name": "f", "parameterNotFoundAction": "Allow"},
    )
    reply = await harness.post(MAPS, config("early"))
    text = "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Foo'"
    assert reply.message == f"""configmaps "early" is forbidden: ValidatingAdmissionPolicy 'p' denied request: {text}"""
    await harness.define(version("v1", of(most={"type": "integer"})))
    assert (await harness.post(MAPS, config("late", {"a": "1", "b": "2"}))).status == 201
    await harness.make("/apis/example.com/v1/namespaces/default/foos", foo(spec={"most": 1}))
    assert (await harness.post(MAPS, config("last", {"a": "1", "b": "2"}))).status == 422
    assert (await harness.post(MAPS, config("least", {"a": "1"}))).status == 201


async def test_without_a_reference_params_are_null(harness: CustomResourceHarness) -> None:
    await enforce(harness, policy("p", "params != null", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}))
    assert (await harness.post(MAPS, config())).message.endswith("failed expression: params != null")


# -- what else counts -------------------------------------------------------------------------------------------------


async def test_changes_take_effect_at_once(harness: CustomResourceHarness) -> None:
    policies, bindings = (f"{REGISTRATION}/validatingadmission{one}" for one in ("policies", "policybindings"))
    await harness.make(policies, policy("p", "false"))
    assert (await harness.post(MAPS, config("a"))).status == 201
    await harness.make(bindings, binding("b", "p"))
    assert (await harness.post(MAPS, config("b"))).status == 422
    await harness.patch(f"{policies}/p", {"spec": {"validations": [{"expression": "true"}]}})
    assert (await harness.post(MAPS, config("b"))).status == 201
    await harness.patch(f"{policies}/p", {"spec": {"validations": [{"expression": "1 > 2"}]}})
    assert (await harness.post(MAPS, config("c"))).message.endswith("failed expression: 1 > 2")
    await harness.delete(f"{bindings}/b")
    assert (await harness.post(MAPS, config("c"))).status == 201


async def test_policies_and_reviews_are_exempt(harness: CustomResourceHarness) -> None:
    rules = [{**rule("*/*", operations=("*",)), "apiGroups": ["*"]}]
    await enforce(harness, policy("p", "false", rules=rules))
    path = f"{REGISTRATION}/validatingadmissionpolicybindings"
    asked = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    assert (await harness.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)).status == 201
    assert (
        await harness.post(f"{REGISTRATION}/validatingwebhookconfigurations", {"metadata": {"name": "w"}})
    ).status == 422
    assert (await harness.post(MAPS, config())).status == 422
    assert (await harness.delete(f"{path}/p-b")).status == 200
    assert (await harness.post(MAPS, config())).status == 201


async def test_a_scale_request_has_the_kind_scale(harness: CustomResourceHarness) -> None:
    await harness.make(f"{APPS}/deployments", deployment("d", 1))
    rules = [rule("deployments/scale", group="apps")]
    text = "object.kind == 'Scale' && object.apiVersion == 'autoscaling/v1' && request.kind.kind == 'Scale' "
    text += "&& request.subResource == 'scale' && object.spec.replicas < 5 && oldObject.spec.replicas == 1"
    await enforce(harness, policy("p", text, rules=rules))
    assert (await harness.patch(f"{APPS}/deployments/d/scale", {"spec": {"replicas": 5}})).status == 422
    assert (await harness.patch(f"{APPS}/deployments/d/scale", {"spec": {"replicas": 4}})).status == 200
    assert (await harness.patch(f"{APPS}/deployments/d", {"spec": {"replicas": 9}})).status == 200


async def test_evictions_and_bindings_are_validated(harness: CustomResourceHarness) -> None:
    made = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await harness.make(f"{CORE}/pods", made)
    rules = [rule("pods/binding", "pods/eviction")]
    await enforce(harness, policy("p", "object.kind == 'Binding' && object.target.name != 'bad'", rules=rules))
    bind = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "bad"}}
    assert (await harness.post(f"{CORE}/pods/p/binding", bind)).status == 422
    evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await harness.post(f"{CORE}/pods/p/eviction", evict)).status == 422
    assert (
        await harness.post(f"{CORE}/pods/p/binding", {**bind, "target": {"kind": "Node", "name": "n"}})
    ).status == 201


@pytest.mark.parametrize("match_policy, refused", [("Equivalent", True), ("Exact", False)])
async def test_equivalent_versions_match_unless_exact(
    harness: CustomResourceHarness, match_policy: str, refused: bool
) -> None:
    rules = [{**rule("horizontalpodautoscalers", group="autoscaling"), "apiVersions": ["v2"]}]
    text = "!(object.apiVersion == 'autoscaling/v2' && has(object.spec.metrics) && request.resource.version == 'v2' "
    text += "&& request.requestResource.version == 'v1')"
    await enforce(harness, policy("p", text, rules=rules, match={"matchPolicy": match_policy}))
    spec = {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    made = {"metadata": {"name": "h"}, "spec": {**spec, "targetCPUUtilizationPercentage": 50}}
    reply = await harness.post("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", made)
    assert reply.status == (422 if refused else 201), reply.body


async def test_custom_objects_are_converted_to_the_matching_version(harness: CustomResourceHarness) -> None:
    await harness.define(version("v1"), version("v2", storage=False))
    rules = [{**rule("foos", group="example.com"), "apiVersions": ["v2"]}]
    await enforce(harness, policy("p", "object.apiVersion != 'example.com/v2' || object.spec.a != 1", rules=rules))
    path = "/apis/example.com/v1/namespaces/default/foos"
    assert (await harness.post(path, foo(spec={"a": 1}))).status == 422
    assert (await harness.post(path, foo(spec={"a": 2}))).status == 201


async def test_generated_names_are_known(harness: CustomResourceHarness) -> None:
    await enforce(harness, policy("p", "request.name.startsWith('gen-') && request.name == object.metadata.name"))
    made = {"metadata": {"generateName": "gen-"}, "data": {}}
    assert (await harness.post(MAPS, made)).status == 201


async def test_the_authorizer_gets_selectors(harness: CustomResourceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Access] = []
    authorize = AuthorizerChain.authorize

    def watched(chain: AuthorizerChain, access: Access) -> Any:
        asked.append(access)
        return authorize(chain, access)

    monkeypatch.setattr(AuthorizerChain, "authorize", watched)
    pods = "authorizer.group('').resource('pods')"
    await enforce(
        harness,
        policy(
            "p",
            f"{pods}.fieldSelector('spec.nodeName=n,a!=b').labelSelector('app in (x, y)').check('list').allowed()",
            f"{pods}.fieldSelector('&').labelSelector('? ?').check('watch').allowed()",
        ),
    )
    assert (await harness.post(MAPS, config())).status == 201
    (found,) = [access for access in asked if (access.resource, access.verb) == ("pods", "list")]
    assert [(one.key, one.operator, one.values) for one in found.fields] == [
        ("a", "!=", ("b",)),
        ("spec.nodeName", "=", ("n",)),
    ]
    assert [(one.key, one.operator, one.values) for one in found.labels] == [("app", "in", ("x", "y"))]
    (unread,) = [access for access in asked if (access.resource, access.verb) == ("pods", "watch")]
    assert (unread.fields, unread.labels) == ((), ())


async def test_authorizer_checks_in_expressions(harness: CustomResourceHarness) -> None:
    text = "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"
    await enforce(harness, policy("p", text))
    allowed = {
        "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await harness.make(f"{rbac}/clusterroles", allowed)
    subject = {"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    await harness.make(
        f"{rbac}/clusterrolebindings", {"metadata": {"name": "m"}, "subjects": [subject], "roleRef": reference}
    )
    assert (await harness.post(MAPS, config("a"), token=LIMITED_TOKEN)).status == 422
    assert (await harness.post(MAPS, config("a"))).status == 201
