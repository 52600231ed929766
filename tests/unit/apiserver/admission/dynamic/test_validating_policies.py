"""ValidatingAdmissionPolicies, through the front door."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from custom_door import CustomDoor, foo, of, version
from front_door import LIMITED_TOKEN
from policies import APPS, CORE, REGISTRATION, binding, config, deployment, enforce, policy, rule

from setpoint.apiserver.admission.plugin import Attributes
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain

MAPS = f"{CORE}/configmaps"


async def test_a_write_that_breaks_a_policy_is_refused_in_upstreams_words(door: CustomDoor) -> None:
    await enforce(door, policy("p", "object.metadata.name != 'bad'"))
    assert (await door.post(MAPS, config("good"))).status == 201
    reply = await door.post(MAPS, config("bad"))
    said = "ValidatingAdmissionPolicy 'p' with binding 'p-b' denied request: "
    said += "failed expression: object.metadata.name != 'bad'"
    assert reply.status == 422
    assert reply.json == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
        "message": f'configmaps "bad" is forbidden: {said}',
        "details": {"name": "bad", "kind": "configmaps", "causes": [{"message": said}]},
    }  # fmt: skip


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
async def test_message_and_reason(door: CustomDoor, validation: Any, status: int, reason: str, text: str) -> None:
    await enforce(door, policy("p", {"expression": "false", **validation}))
    reply = await door.post(MAPS, config())
    assert (reply.status, reply.json["reason"]) == (status, reason)
    assert reply.message.endswith(f"denied request: {text}")


async def test_warn_and_audit_let_pass(door: CustomDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Attributes] = []
    plugin = next(one for one in door.api.env.admission.plugins if one.name == "ValidatingAdmissionPolicy")
    validate = plugin.validate

    async def watched(attrs: Attributes) -> None:
        seen.append(attrs)
        await validate(attrs)

    monkeypatch.setattr(plugin, "validate", watched)
    notes = [{"key": "who", "valueExpression": "'by ' + request.userInfo.username"}]
    await enforce(door, policy("p", "true", "false", auditAnnotations=notes), "Warn", "Audit")
    reply = await door.post(MAPS, config())
    assert reply.status == 201
    text = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-b': failed expression: false"
    assert reply.warnings == [f'299 - "{text}"']
    audit = seen[-1].audit
    assert audit["p/who"] == "by admin"
    assert orjson.loads(audit["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "failed expression: false", "policy": "p", "binding": "p-b", "expressionIndex": 1,
            "validationActions": ["Warn", "Audit"],
        }
    ]  # fmt: skip


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
async def test_what_an_expression_sees(door: CustomDoor, expression: str) -> None:
    variables = [
        {"name": "twice", "expression": "object.data.k + object.data.k"},
        {"name": "again", "expression": "variables.twice + variables.twice"},
    ]
    await enforce(door, policy("p", expression, variables=variables))
    reply = await door.post(f"{MAPS}?fieldManager=me", config())
    assert reply.status == 201, reply.message


async def test_an_update_and_a_deletion_see_the_old_object(door: CustomDoor) -> None:
    rules = [rule("configmaps", operations=("*",))]
    rule_text = "oldObject == null || (object == null ? oldObject.data.k != 'keep' : object.data.k != oldObject.data.k)"
    await enforce(door, policy("p", rule_text, rules=rules))
    await door.make(MAPS, config(data={"k": "1"}))
    assert (await door.patch(f"{MAPS}/c", {"data": {"x": "y"}})).status == 422
    assert (await door.patch(f"{MAPS}/c", {"data": {"k": "keep"}})).status == 200
    assert (await door.delete(f"{MAPS}/c")).status == 422
    refused = await door.delete(MAPS)
    assert refused.status == 422 and "p-b" in refused.message
    assert (await door.patch(f"{MAPS}/c", {"data": {"k": "go"}})).status == 200
    assert (await door.delete(MAPS)).status == 200


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
async def test_what_a_policy_is_for(door: CustomDoor, match: dict[str, Any], refused: bool, where: str) -> None:
    of_policy: dict[str, Any] = {"match": match} if where == "policy" else {}
    of_binding: dict[str, Any] = {"matchResources": match} if where == "binding" else {}
    await enforce(door, policy("p", "false", **of_policy), **of_binding)
    reply = await door.post(MAPS, config(labels={"a": "b"}))
    assert reply.status == (422 if refused else 201)


async def test_namespaces_are_chosen_by_their_own_labels(door: CustomDoor) -> None:
    match = {"namespaceSelector": {"matchLabels": {"strict": "yes"}}}
    await enforce(
        door, policy("p", "request.namespace != 'n'", rules=[rule("namespaces", scope="Cluster")], match=match)
    )
    made = {"metadata": {"name": "n", "labels": {"strict": "yes"}}}
    assert (await door.post("/api/v1/namespaces", made)).status == 422
    assert (await door.post("/api/v1/namespaces", {"metadata": {"name": "n"}})).status == 201


@pytest.mark.parametrize(
    "failure_policy, condition, status",
    [
        ("Fail", "request.userInfo.username != 'admin'", 201),
        ("Fail", "object.data.missing == 'x'", 422),
        ("Ignore", "object.data.missing == 'x'", 201),
        ("Fail", "request.userInfo.username == 'admin'", 422),
    ],
)
async def test_match_conditions(door: CustomDoor, failure_policy: str, condition: str, status: int) -> None:
    conditions = [{"name": "here", "expression": condition}]
    await enforce(door, policy("p", "false", matchConditions=conditions, failurePolicy=failure_policy))
    reply = await door.post(MAPS, config())
    assert reply.status == status
    if "missing" in condition and status == 422:
        assert reply.message.endswith(f"expression '{condition}' resulted in error: no such key: missing")


@pytest.mark.parametrize("failure_policy, status", [("Fail", 422), ("Ignore", 201)])
async def test_failures_are_refusals_unless_ignored(door: CustomDoor, failure_policy: str, status: int) -> None:
    await enforce(door, policy("p", "object.spec.x == 1", failurePolicy=failure_policy))
    reply = await door.post(MAPS, config())
    assert reply.status == status
    if status == 422:
        text = "expression 'object.spec.x == 1' resulted in error: no such key: spec"
        assert reply.message.endswith(f"denied request: {text}")


async def test_a_failing_variable_is_named(door: CustomDoor) -> None:
    await enforce(door, policy("p", "variables.v == 1", variables=[{"name": "v", "expression": "object.nothing"}]))
    reply = await door.post(MAPS, config())
    text = """expression 'variables.v == 1' resulted in error: composited variable "v" fails to evaluate: """
    assert reply.message.endswith(f"{text}no such key: nothing")


async def test_costs_are_limited(door: CustomDoor) -> None:
    loop = "[1,2,3,4,5,6,7,8,9,0]"
    text = f"{loop}.all(a, {loop}.all(b, {loop}.all(c, {loop}.all(d, {loop}.all(e, {loop}.all(f, true))))))"
    await enforce(door, policy("p", text))
    reply = await door.post(MAPS, config())
    assert reply.message.endswith("resulted in error: operation cancelled: actual cost limit exceeded")


# -- parameters -------------------------------------------------------------------------------------------------------


async def test_parameters_by_name_and_selector(door: CustomDoor) -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    text = "object.spec.replicas <= int(params.data.most)"
    made = policy("p", {"expression": text, "messageExpression": "'most ' + params.data.most"}, paramKind=kind)
    made["spec"]["matchConstraints"]["resourceRules"] = [rule("deployments", group="apps")]
    reference = {"name": "limits", "namespace": "other", "parameterNotFoundAction": "Deny"}
    await enforce(door, made, paramRef=reference)
    bindings = f"{REGISTRATION}/validatingadmissionpolicybindings"
    reply = await door.post(f"{APPS}/deployments", deployment("d", 1))
    assert reply.message.endswith(
        "with binding 'p-b' denied request: failed to configure binding: "
        "no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    other = "/api/v1/namespaces/other/configmaps"
    await door.make(other, config("limits", {"most": "3"}))
    assert (await door.post(f"{APPS}/deployments", deployment("four", 4))).message.endswith("denied request: most 3")
    assert (await door.post(f"{APPS}/deployments", deployment("three", 3))).status == 201
    # By selector, in the namespace of the request: every one of them counts.
    selected = {"selector": {"matchLabels": {"limit": "yes"}}, "parameterNotFoundAction": "Allow"}
    changed = await door.patch(f"{bindings}/p-b", {"spec": {"paramRef": {"name": None, "namespace": None, **selected}}})
    assert changed.status == 200, changed.body
    assert (await door.post(f"{APPS}/deployments", deployment("four", 4))).status == 201
    await door.make(MAPS, config("first", {"most": "9"}, labels={"limit": "yes"}))
    await door.make(MAPS, config("second", {"most": "2"}, labels={"limit": "yes"}))
    assert (await door.patch(f"{APPS}/deployments/four", {"spec": {"replicas": 5}})).message.endswith("most 2")


async def test_custom_resources_as_parameters(door: CustomDoor) -> None:
    kind = {"apiVersion": "example.com/v1", "kind": "Foo"}
    await enforce(
        door,
        policy("p", "size(object.data) <= params.spec.most", paramKind=kind),
        paramRef={"name": "f", "parameterNotFoundAction": "Allow"},
    )
    reply = await door.post(MAPS, config("early"))
    text = "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Foo'"
    assert reply.message == f"""configmaps "early" is forbidden: ValidatingAdmissionPolicy 'p' denied request: {text}"""
    await door.define(version("v1", of(most={"type": "integer"})))
    assert (await door.post(MAPS, config("late", {"a": "1", "b": "2"}))).status == 201
    await door.make("/apis/example.com/v1/namespaces/default/foos", foo(spec={"most": 1}))
    assert (await door.post(MAPS, config("last", {"a": "1", "b": "2"}))).status == 422
    assert (await door.post(MAPS, config("least", {"a": "1"}))).status == 201


async def test_without_a_reference_params_are_null(door: CustomDoor) -> None:
    await enforce(door, policy("p", "params != null", paramKind={"apiVersion": "v1", "kind": "ConfigMap"}))
    assert (await door.post(MAPS, config())).message.endswith("failed expression: params != null")


# -- what else counts -------------------------------------------------------------------------------------------------


async def test_changes_take_effect_at_once(door: CustomDoor) -> None:
    policies, bindings = (f"{REGISTRATION}/validatingadmission{one}" for one in ("policies", "policybindings"))
    await door.make(policies, policy("p", "false"))
    assert (await door.post(MAPS, config("a"))).status == 201
    await door.make(bindings, binding("b", "p"))
    assert (await door.post(MAPS, config("b"))).status == 422
    await door.patch(f"{policies}/p", {"spec": {"validations": [{"expression": "true"}]}})
    assert (await door.post(MAPS, config("b"))).status == 201
    await door.patch(f"{policies}/p", {"spec": {"validations": [{"expression": "1 > 2"}]}})
    assert (await door.post(MAPS, config("c"))).message.endswith("failed expression: 1 > 2")
    await door.delete(f"{bindings}/b")
    assert (await door.post(MAPS, config("c"))).status == 201


async def test_policies_are_not_for_policies_and_reviews(door: CustomDoor) -> None:
    rules = [{**rule("*/*", operations=("*",)), "apiGroups": ["*"]}]
    await enforce(door, policy("p", "false", rules=rules))
    path = f"{REGISTRATION}/validatingadmissionpolicybindings"
    asked = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    assert (await door.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked)).status == 201
    assert (
        await door.post(f"{REGISTRATION}/validatingwebhookconfigurations", {"metadata": {"name": "w"}})
    ).status == 422
    assert (await door.post(MAPS, config())).status == 422
    assert (await door.delete(f"{path}/p-b")).status == 200
    assert (await door.post(MAPS, config())).status == 201


async def test_the_scale_of_a_workload_is_seen_as_such(door: CustomDoor) -> None:
    await door.make(f"{APPS}/deployments", deployment("d", 1))
    rules = [rule("deployments/scale", group="apps")]
    text = "object.kind == 'Scale' && object.apiVersion == 'autoscaling/v1' && request.kind.kind == 'Scale' "
    text += "&& request.subResource == 'scale' && object.spec.replicas < 5 && oldObject.spec.replicas == 1"
    await enforce(door, policy("p", text, rules=rules))
    assert (await door.patch(f"{APPS}/deployments/d/scale", {"spec": {"replicas": 5}})).status == 422
    assert (await door.patch(f"{APPS}/deployments/d/scale", {"spec": {"replicas": 4}})).status == 200
    assert (await door.patch(f"{APPS}/deployments/d", {"spec": {"replicas": 9}})).status == 200


async def test_orders_about_pods_are_seen(door: CustomDoor) -> None:
    made = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await door.make(f"{CORE}/pods", made)
    rules = [rule("pods/binding", "pods/eviction")]
    await enforce(door, policy("p", "object.kind == 'Binding' && object.target.name != 'bad'", rules=rules))
    bind = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "bad"}}
    assert (await door.post(f"{CORE}/pods/p/binding", bind)).status == 422
    evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert (await door.post(f"{CORE}/pods/p/eviction", evict)).status == 422
    assert (await door.post(f"{CORE}/pods/p/binding", {**bind, "target": {"kind": "Node", "name": "n"}})).status == 201


@pytest.mark.parametrize("match_policy, refused", [("Equivalent", True), ("Exact", False)])
async def test_equivalent_versions_match_unless_exact_is_asked_for(
    door: CustomDoor, match_policy: str, refused: bool
) -> None:
    rules = [{**rule("horizontalpodautoscalers", group="autoscaling"), "apiVersions": ["v2"]}]
    text = "!(object.apiVersion == 'autoscaling/v2' && has(object.spec.metrics) && request.resource.version == 'v2' "
    text += "&& request.requestResource.version == 'v1')"
    await enforce(door, policy("p", text, rules=rules, match={"matchPolicy": match_policy}))
    spec = {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
    made = {"metadata": {"name": "h"}, "spec": {**spec, "targetCPUUtilizationPercentage": 50}}
    reply = await door.post("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", made)
    assert reply.status == (422 if refused else 201), reply.body


async def test_custom_objects_are_judged_in_the_version_that_matches(door: CustomDoor) -> None:
    await door.define(version("v1"), version("v2", storage=False))
    rules = [{**rule("foos", group="example.com"), "apiVersions": ["v2"]}]
    await enforce(door, policy("p", "object.apiVersion != 'example.com/v2' || object.spec.a != 1", rules=rules))
    path = "/apis/example.com/v1/namespaces/default/foos"
    assert (await door.post(path, foo(spec={"a": 1}))).status == 422
    assert (await door.post(path, foo(spec={"a": 2}))).status == 201


async def test_generated_names_are_known(door: CustomDoor) -> None:
    await enforce(door, policy("p", "request.name.startsWith('gen-') && request.name == object.metadata.name"))
    made = {"metadata": {"generateName": "gen-"}, "data": {}}
    assert (await door.post(MAPS, made)).status == 201


async def test_the_authorizer_is_told_of_selectors(door: CustomDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Access] = []
    authorize = AuthorizerChain.authorize

    def watched(chain: AuthorizerChain, access: Access) -> Any:
        asked.append(access)
        return authorize(chain, access)

    monkeypatch.setattr(AuthorizerChain, "authorize", watched)
    pods = "authorizer.group('').resource('pods')"
    await enforce(
        door,
        policy(
            "p",
            f"{pods}.fieldSelector('spec.nodeName=n,a!=b').labelSelector('app in (x, y)').check('list').allowed()",
            f"{pods}.fieldSelector('&').labelSelector('? ?').check('watch').allowed()",
        ),
    )
    assert (await door.post(MAPS, config())).status == 201
    (found,) = [access for access in asked if (access.resource, access.verb) == ("pods", "list")]
    assert [(one.key, one.operator, one.values) for one in found.fields] == [
        ("a", "!=", ("b",)),
        ("spec.nodeName", "=", ("n",)),
    ]
    assert [(one.key, one.operator, one.values) for one in found.labels] == [("app", "in", ("x", "y"))]
    (unread,) = [access for access in asked if (access.resource, access.verb) == ("pods", "watch")]
    assert (unread.fields, unread.labels) == ((), ())


async def test_whoever_may_not_is_told_by_the_authorizer(door: CustomDoor) -> None:
    text = "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()"
    await enforce(door, policy("p", text))
    allowed = {
        "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await door.make(f"{rbac}/clusterroles", allowed)
    subject = {"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    await door.make(
        f"{rbac}/clusterrolebindings", {"metadata": {"name": "m"}, "subjects": [subject], "roleRef": reference}
    )
    assert (await door.post(MAPS, config("a"), token=LIMITED_TOKEN)).status == 422
    assert (await door.post(MAPS, config("a"))).status == 201
