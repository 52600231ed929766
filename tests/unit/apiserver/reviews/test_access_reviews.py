from __future__ import annotations

from typing import Any

import pytest
from server_harness import ADMIN_TOKEN, LIMITED_TOKEN, ServerHarness

REVIEWS = "/apis/authorization.k8s.io/v1"
SELF, SUBJECT = f"{REVIEWS}/selfsubjectaccessreviews", f"{REVIEWS}/subjectaccessreviews"
LOCAL = f"{REVIEWS}/namespaces/default/localsubjectaccessreviews"
LIST_PODS = {"verb": "list", "resource": "pods", "namespace": "default"}


async def status(harness: ServerHarness, path: str, spec: dict[str, Any], token: str = ADMIN_TOKEN) -> dict[str, Any]:
    reply = await harness.post(path, {"spec": spec}, token=token)
    assert reply.status == 201, reply.body
    found: dict[str, Any] = reply.json["status"]
    return found


async def test_the_reason_names_binding_role_and_subject(full_harness: ServerHarness) -> None:
    spec = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
    assert await status(full_harness, SELF, spec, LIMITED_TOKEN) == {
        "allowed": True,
        "reason": 'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" '
        'to Group "system:authenticated"',
    }
    asked = spec | {"user": "x", "groups": ["system:unauthenticated"]}
    assert (await status(full_harness, SUBJECT, asked))["reason"].endswith('to Group "system:unauthenticated"')


async def test_a_service_account_is_named_with_its_namespace(harness: ServerHarness) -> None:
    here = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    await harness.make(f"{here}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    subjects = [{"kind": "ServiceAccount", "name": "sa"}]
    await harness.make(f"{here}/rolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})
    spec = {"user": "system:serviceaccount:default:sa", "resourceAttributes": LIST_PODS}
    assert await status(harness, LOCAL, spec) == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "b/default" of Role "r" to ServiceAccount "sa/default"',
    }
    assert await status(harness, LOCAL, spec | {"user": "system:serviceaccount:other:sa"}) == {"allowed": False}


async def test_administrators_need_no_reason(harness: ServerHarness) -> None:
    assert await status(harness, SELF, {"resourceAttributes": LIST_PODS}) == {"allowed": True}
    assert await status(harness, SUBJECT, {"user": "x", "groups": ["system:masters"], "resourceAttributes": {}}) == {
        "allowed": True
    }


async def test_the_question_comes_back_owned_and_without_the_asked_status(harness: ServerHarness) -> None:
    sent = {"spec": {"resourceAttributes": LIST_PODS}, "status": {"allowed": False, "reason": "mine"}}
    review = (await harness.post(SELF, sent)).json
    assert review["spec"] == sent["spec"]
    assert review["status"] == {"allowed": True}
    (entry,) = review["metadata"]["managedFields"]
    assert entry["manager"] == "tests"


@pytest.mark.parametrize(
    ("selectors", "told"),
    [
        ({"fieldSelector": {"rawSelector": "a=b"}, "labelSelector": {"rawSelector": "a in (b)"}}, ""),
        ({"fieldSelector": {"rawSelector": "a"}}, "fieldSelector ignored"),
        ({"labelSelector": {"rawSelector": "a b"}}, "labelSelector ignored"),
        ({"labelSelector": {"rawSelector": "a," * 5_000 + "a"}}, "labelSelector ignored"),
        ({"fieldSelector": {"rawSelector": "a=b," * 5_000 + "a=b"}}, "fieldSelector ignored"),
        (
            {"fieldSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}},
            "fieldSelector ignored",
        ),
        (
            {"labelSelector": {"requirements": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Odd"}]}},
            "labelSelector partially ignored",
        ),
    ],
)
async def test_selectors_that_cannot_be_read_are_told(
    harness: ServerHarness, selectors: dict[str, Any], told: str
) -> None:
    found = await status(harness, SELF, {"resourceAttributes": LIST_PODS | selectors})
    expected = f"spec.resourceAttributes.{told} due to parse error" if told else None
    assert found.get("evaluationError") == expected


async def test_the_namespace_must_fit(harness: ServerHarness) -> None:
    body = {"spec": {"user": "u", "resourceAttributes": {"verb": "get", "namespace": "other"}}}
    reply = await harness.post(LOCAL, body)
    assert reply.status == 422
    assert reply.message == (
        '.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "other": '
        "must match metadata.namespace"
    )
    reply = await harness.post(LOCAL, body | {"metadata": {"namespace": "other"}})
    assert reply.status == 400
    assert (await harness.post(f"{REVIEWS}/localsubjectaccessreviews", body)).status == 404


async def test_all_that_one_may_do(full_harness: ServerHarness) -> None:
    path = f"{REVIEWS}/selfsubjectrulesreviews"
    reply = await full_harness.post(path, {"spec": {"namespace": "default"}}, token=LIMITED_TOKEN)
    assert reply.json["spec"] == {}
    found = reply.json["status"]
    assert {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]} in found[
        "resourceRules"
    ]
    assert any("/version" in rule["nonResourceURLs"] for rule in found["nonResourceRules"])
    assert found["incomplete"] is False
    assert (await full_harness.post(path, {"spec": {}})).message == "no namespace on request"


ANYBODY = {
    "create selfsubjectaccessreviews,selfsubjectrulesreviews.authorization.k8s.io",
    "create selfsubjectreviews.authentication.k8s.io",
    "get /healthz,/livez,/readyz,/version,/version/",
    "get /api,/api/*,/apis,/apis/*,/healthz,/livez,/openapi,/openapi/*,/readyz,/version,/version/",
}
ACCOUNT = {
    "get,list,watch clustertrustbundles.certificates.k8s.io",
    "get /.well-known/openid-configuration,/.well-known/openid-configuration/,/openid/v1/jwks,/openid/v1/jwks/",
}
EVENTS = "create,patch,update events.,events.k8s.io"


@pytest.mark.parametrize(
    ("user", "groups", "rules"),
    [
        ("alice", (), ANYBODY),
        ("root", ("system:masters",), ANYBODY | {"* *.*", "* *"}),
        ("system:node:n1", ("system:nodes",), ANYBODY),
        (
            "system:kube-proxy",
            (),
            ANYBODY
            | {
                "list,watch endpoints,services.",
                "get,list,watch nodes.",
                "list,watch servicecidrs.networking.k8s.io",
                "list,watch endpointslices.discovery.k8s.io",
                EVENTS,
            },
        ),
        (
            "system:serviceaccount:kube-system:ttl-controller",
            ("system:serviceaccounts",),
            ANYBODY
            | ACCOUNT
            | {
                "list,patch,update,watch nodes.",
                EVENTS,
            },
        ),
    ],
)
async def test_what_those_may_do_whom_a_cluster_begins_with(
    full_harness: ServerHarness, user: str, groups: tuple[str, ...], rules: set[str]
) -> None:
    headers = {"impersonate-user": user} | ({"impersonate-group": groups[0]} if groups else {})
    reply = await full_harness.post(f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "x"}}, headers=headers)
    status = reply.json["status"]
    assert {
        f"{','.join(rule['verbs'])} {','.join(rule['resources'])}.{','.join(rule['apiGroups'])}"
        for rule in status["resourceRules"]
    } | {
        f"{','.join(rule['verbs'])} {','.join(rule['nonResourceURLs'])}" for rule in status["nonResourceRules"]
    } == rules


async def test_reviews_are_asked_and_nothing_else(harness: ServerHarness) -> None:
    assert (await harness.get(SELF)).status == 405
    assert (await harness.get(f"{SELF}/x")).status == 404
    before = harness.store.revision
    await status(harness, SELF, {"resourceAttributes": LIST_PODS})
    assert harness.store.revision == before
