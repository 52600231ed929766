"""Prevention of privilege escalation."""

from __future__ import annotations

from typing import Any

import pytest
from server_harness import LIMITED_TOKEN, ServerHarness

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
HERE = f"{RBAC}/namespaces/default"
ME = [{"kind": "User", "name": "limited"}]
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def ref(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": GROUP, "kind": kind, "name": name}


@pytest.fixture
async def editor(harness: ServerHarness) -> ServerHarness:
    """Let `limited` write roles and bindings, and read Pods."""
    kinds = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]
    verbs = ["get", "create", "update", "patch", "delete"]
    rules = [{"apiGroups": [GROUP], "resources": kinds, "verbs": verbs}, READ_PODS]
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "editor"}, "rules": rules})
    await harness.make(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": "editor"}, "roleRef": ref("ClusterRole", "editor"), "subjects": ME},
    )
    return harness


async def allow(harness: ServerHarness, verb: str, resource: str, name: str) -> None:
    rule = {"apiGroups": [GROUP], "resources": [resource], "verbs": [verb], "resourceNames": [name]}
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": f"may-{verb}"}, "rules": [rule]})
    await harness.make(
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": f"may-{verb}"}, "roleRef": ref("ClusterRole", f"may-{verb}"), "subjects": ME},
    )


async def test_a_role_within_the_users_rights_is_allowed(editor: ServerHarness) -> None:
    role = {"metadata": {"name": "r"}, "rules": [READ_PODS | {"verbs": ["get"]}]}
    assert (await editor.post(f"{HERE}/roles", role, token=LIMITED_TOKEN)).status == 201


async def test_a_role_beyond_the_users_rights_is_refused(editor: ServerHarness) -> None:
    role = {
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "delete"]}],
    }
    for method, path in (("POST", f"{HERE}/roles"), ("PUT", f"{HERE}/roles/r")):
        reply = await editor.request(method, path, role, token=LIMITED_TOKEN)
        assert reply.status == 403
        assert reply.message == (
            'roles.rbac.authorization.k8s.io "r" is forbidden: user "limited" (groups=["some-group" '
            '"system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}'
        )
    assert (await editor.get(f"{HERE}/roles/r")).status == 404


async def test_a_role_cannot_be_extended_in_steps(editor: ServerHarness) -> None:
    await editor.make(f"{HERE}/roles", {"metadata": {"name": "r"}, "rules": [READ_PODS]})
    wider: dict[str, Any] = {"rules": [READ_PODS, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    assert (await editor.patch(f"{HERE}/roles/r", wider, token=LIMITED_TOKEN)).status == 403
    assert (await editor.patch(f"{HERE}/roles/r", {"rules": []}, token=LIMITED_TOKEN)).status == 200


async def test_garbage_collection_fields_of_any_role_may_change(editor: ServerHarness) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await editor.make(f"{HERE}/roles", {"metadata": {"name": "r"}, "rules": rules})
    path = f"{HERE}/roles/r"
    assert (await editor.patch(path, {"metadata": {"finalizers": ["a.b/c"]}}, token=LIMITED_TOKEN)).status == 200
    assert (await editor.patch(path, {"metadata": {"labels": {"a": "b"}}}, token=LIMITED_TOKEN)).status == 403


async def test_the_verb_escalate(editor: ServerHarness) -> None:
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await allow(editor, "escalate", "clusterroles", "r")
    for name, status in (("r", 201), ("s", 403)):
        role = {"metadata": {"name": name}, "rules": rules}
        reply = await editor.put(f"{RBAC}/clusterroles/{name}", role, token=LIMITED_TOKEN)
        assert reply.status == status


async def test_aggregation_requires_all_rights(editor: ServerHarness) -> None:
    role = {"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    reply = await editor.post(f"{RBAC}/clusterroles", role, token=LIMITED_TOKEN)
    assert reply.status == 403
    assert reply.message.endswith(": must have cluster-admin privileges to use the aggregationRule")


async def test_a_binding_grants_its_role(editor: ServerHarness) -> None:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await editor.make(f"{RBAC}/clusterroles", {"metadata": {"name": "all"}, "rules": everything})
    binding = {"metadata": {"name": "b"}, "roleRef": ref("ClusterRole", "all"), "subjects": ME}
    for path in (f"{HERE}/rolebindings", f"{RBAC}/clusterrolebindings"):
        reply = await editor.post(path, binding, token=LIMITED_TOKEN)
        assert reply.status == 403
        assert '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in reply.message
    await allow(editor, "bind", "clusterroles", "all")
    assert (await editor.post(f"{HERE}/rolebindings", binding, token=LIMITED_TOKEN)).status == 201


@pytest.mark.parametrize(
    ("role", "status", "message"),
    [
        (ref("Role", "nosuch"), 404, 'rolebindings.rbac.authorization.k8s.io "nosuch" not found'),
        (ref("Foo", "x"), 500, 'unsupported role reference kind: "Foo"'),
        (ref("ClusterRole", ""), 400, "Name parameter required."),
    ],
)
async def test_bindings_to_missing_roles(
    editor: ServerHarness, role: dict[str, str], status: int, message: str
) -> None:
    binding = {"metadata": {"name": "b"}, "roleRef": role, "subjects": ME}
    reply = await editor.post(f"{HERE}/rolebindings", binding, token=LIMITED_TOKEN)
    assert (reply.status, reply.message) == (status, message)


@pytest.mark.parametrize(
    ("method", "how", "resource", "obj"),
    [
        ("PATCH", "application/apply-patch+yaml", "configmaps", {"apiVersion": "v1", "kind": "ConfigMap"}),
        ("PATCH", "application/apply-patch+yaml", "secrets", {"apiVersion": "v1", "kind": "Secret"}),
        ("PUT", "application/json", "endpoints", {}),
        ("PUT", "application/json", "limitranges", {}),
    ],
)
async def test_update_permission_does_not_allow_creation_by_patch(
    harness: ServerHarness, method: str, how: str, resource: str, obj: dict[str, Any]
) -> None:
    rule = {"apiGroups": [""], "resources": [resource], "verbs": ["update", "patch"]}
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "changer"}, "rules": [rule]})
    binding = {"metadata": {"name": "changer"}, "roleRef": ref("ClusterRole", "changer"), "subjects": ME}
    await harness.make(f"{RBAC}/clusterrolebindings", binding)
    path = f"/api/v1/namespaces/default/{resource}/x"
    asked = path + "?fieldManager=me" * (method == "PATCH")
    named = obj | {"metadata": {"name": "x"}}
    for dry in ("", f"{'&' if '?' in asked else '?'}dryRun=All"):
        reply = await harness.request(method, asked + dry, named, how, token=LIMITED_TOKEN)
        assert (reply.status, reply.message) == (
            403,
            f'{resource} "x" is forbidden: User "limited" cannot create resource "{resource}" in API group "" in the '
            'namespace "default"',
        )
        assert (await harness.get(path)).status == 404
    assert (await harness.request(method, asked, named, how)).status == 201
    assert (await harness.request(method, asked, named, how, token=LIMITED_TOKEN)).status == 200
