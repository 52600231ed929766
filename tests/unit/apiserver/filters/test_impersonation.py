from __future__ import annotations

from typing import Any

import pytest
from server_harness import ADMIN_TOKEN, LIMITED_TOKEN, ServerHarness

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
PODS = "/api/v1/namespaces/default/pods"
IDENTITY = "authentication.k8s.io"


async def allow(harness: ServerHarness, name: str, *rules: dict[str, Any]) -> None:
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "User", "name": "limited"}]
    await harness.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
    )


def rule(verb: str, *resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": [verb], **more}


async def who(harness: ServerHarness, headers: dict[str, str], token: str = ADMIN_TOKEN) -> dict[str, Any]:
    reply = await harness.post(WHO, {}, headers=headers, token=token)
    assert reply.status == 201, reply.body
    info: dict[str, Any] = reply.json["status"]["userInfo"]
    return info


@pytest.mark.parametrize(
    ("headers", "groups"),
    [
        (
            {"impersonate-user": "system:serviceaccount:a:b", "impersonate-group": "system:masters"},
            ["system:masters", "system:authenticated"],
        ),
        ({"impersonate-user": "x", "impersonate-group": "system:masters"}, ["system:masters", "system:authenticated"]),
    ],
)
async def test_an_administrator_may_impersonate_any_user(
    harness: ServerHarness, headers: dict[str, str], groups: list[str]
) -> None:
    assert await who(harness, headers) == {"username": headers["impersonate-user"], "groups": groups}


async def test_uid_and_extra_are_impersonated_too(harness: ServerHarness) -> None:
    headers = {
        "impersonate-user": "jane",
        "impersonate-group": "system:masters",
        "impersonate-uid": "u",
        "impersonate-extra-acme.com%2Fscopes": "a",
        "impersonate-extra-bad%zz": "b",
    }
    info = await who(harness, headers)
    assert info["uid"] == "u"
    assert info["extra"] == {"acme.com/scopes": ["a"], "bad%zz": ["b"]}


async def test_impersonation_needs_permission(harness: ServerHarness) -> None:
    reply = await harness.get(PODS, headers={"impersonate-user": "jane"}, token=LIMITED_TOKEN)
    assert reply.status == 403
    assert reply.message == (
        'pods is forbidden: User "limited" cannot impersonate-on:user-info:list resource "pods" in API group "" '
        'in the namespace "default"'
    )


async def test_a_group_needs_a_user(harness: ServerHarness) -> None:
    headers = {"impersonate-group": "devs", "impersonate-extra-a": "b"}
    reply = await harness.get(PODS, headers=headers)
    assert reply.status == 400
    assert reply.message == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"devs"}, '
        'Extra:map[string][]string{"a":[]string{"b"}}} without impersonating a user name'
    )


async def test_the_legacy_verb_is_checked_for_every_attribute(harness: ServerHarness) -> None:
    await allow(harness, "old", rule("impersonate", "users", resourceNames=["jane"]))
    headers = {"impersonate-user": "jane"}
    reply = await harness.get(PODS, headers=headers, token=LIMITED_TOKEN)
    assert reply.message.startswith('pods is forbidden: User "jane" cannot list')
    # The refusal of the mode that last succeeded is returned.
    reply = await harness.get(PODS, headers=headers | {"impersonate-group": "devs"}, token=LIMITED_TOKEN)
    assert reply.message == (
        'groups "devs" is forbidden: User "limited" cannot impersonate resource "groups" in API group "" '
        "at the cluster scope"
    )


async def test_constrained_impersonation_is_for_one_verb_and_never_for_masters(harness: ServerHarness) -> None:
    await allow(
        harness,
        "new",
        rule("impersonate-on:user-info:list", "pods"),
        rule("impersonate:user-info", "users", "groups", group=IDENTITY),
    )
    headers = {"impersonate-user": "jane"}
    reply = await harness.get(PODS, headers=headers, token=LIMITED_TOKEN)
    assert reply.message.startswith('pods is forbidden: User "jane" cannot list')
    reply = await harness.get(f"{PODS}/x", headers=headers, token=LIMITED_TOKEN)
    assert "cannot impersonate-on:user-info:get resource" in reply.message
    reply = await harness.get(PODS, headers=headers | {"impersonate-group": "system:masters"}, token=LIMITED_TOKEN)
    assert reply.status == 403
    assert reply.message.endswith(": impersonating the system:masters group is not allowed")


async def test_modes_for_service_accounts_and_nodes(harness: ServerHarness) -> None:
    await allow(
        harness,
        "both",
        rule("impersonate-on:serviceaccount:list", "pods"),
        rule("impersonate-on:arbitrary-node:list", "pods"),
        rule("impersonate:serviceaccount", "serviceaccounts", group=IDENTITY),
        rule("impersonate:arbitrary-node", "nodes", group=IDENTITY, resourceNames=["n1"]),
    )
    for user, passes in (
        ("system:serviceaccount:a:b", True),
        ("system:node:n1", True),
        ("system:node:n2", False),
        ("jane", False),
    ):
        reply = await harness.get(PODS, headers={"impersonate-user": user}, token=LIMITED_TOKEN)
        assert reply.status == 403
        assert (f'User "{user}" cannot list' in reply.message) is passes


async def test_anonymous_users_stay_unauthenticated(harness: ServerHarness) -> None:
    reply = await harness.get(PODS, headers={"impersonate-user": "admin"}, token="unknown")
    assert reply.status == 401
