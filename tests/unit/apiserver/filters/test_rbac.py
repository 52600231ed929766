"""Roles and bindings, through the API."""

from __future__ import annotations

from typing import Any

from server_harness import LIMITED_TOKEN, ServerHarness

RBAC = "/apis/rbac.authorization.k8s.io/v1"
HERE = f"{RBAC}/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"


def reading(*resources: str, **more: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": list(resources), "verbs": ["get", "list"], **more}


async def grant(harness: ServerHarness, name: str, rules: list[dict[str, Any]], *subjects: dict[str, str]) -> None:
    await harness.make(f"{HERE}/roles", {"metadata": {"name": name}, "rules": rules})
    await harness.make(
        f"{HERE}/rolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": list(subjects) or [{"kind": "User", "name": "limited"}],
        },
    )


async def status_of(harness: ServerHarness, path: str = PODS) -> int:
    return (await harness.get(path, token=LIMITED_TOKEN)).status


async def test_nothing_is_allowed_by_default(harness: ServerHarness) -> None:
    reply = await harness.get(PODS, token=LIMITED_TOKEN)
    assert reply.status == 403
    assert reply.message == (
        'pods is forbidden: User "limited" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    await grant(harness, "r", [reading("pods")])
    assert await status_of(harness) == 200
    assert await status_of(harness, "/api/v1/pods") == 403
    assert await status_of(harness, "/api/v1/namespaces/other/pods") == 403


async def test_changes_take_effect_at_once(harness: ServerHarness) -> None:
    await grant(harness, "r", [reading("pods")])
    assert await status_of(harness) == 200
    await harness.patch(f"{HERE}/roles/r", {"rules": [reading("configmaps")]})
    assert await status_of(harness) == 403
    await harness.patch(f"{HERE}/roles/r", {"rules": [reading("pods")]})
    assert await status_of(harness) == 200
    await harness.patch(f"{HERE}/rolebindings/r", {"subjects": [{"kind": "User", "name": "x"}]})
    assert await status_of(harness) == 403
    await harness.patch(f"{HERE}/rolebindings/r", {"subjects": [{"kind": "Group", "name": "some-group"}]})
    assert await status_of(harness) == 200
    await harness.delete(f"{HERE}/rolebindings/r")
    assert await status_of(harness) == 403


async def test_a_cluster_role_bound_in_a_namespace(harness: ServerHarness) -> None:
    await harness.make(f"{RBAC}/clusterroles", {"metadata": {"name": "c"}, "rules": [reading("pods", "nodes")]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"}
    subjects = [{"kind": "User", "name": "limited"}]
    await harness.make(f"{HERE}/rolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})
    assert await status_of(harness) == 200
    assert await status_of(harness, "/api/v1/nodes") == 403
    await harness.make(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects}
    )
    assert await status_of(harness, "/api/v1/nodes") == 200
    assert await status_of(harness, "/api/v1/namespaces/other/pods") == 200


async def test_a_name_in_the_field_selector_counts_as_the_name(harness: ServerHarness) -> None:
    await grant(harness, "r", [reading("configmaps", resourceNames=["only"])])
    path = "/api/v1/namespaces/default/configmaps"
    assert await status_of(harness, path) == 403
    assert await status_of(harness, f"{path}?fieldSelector=metadata.name=only") == 200
    reply = await harness.get(f"{path}?fieldSelector=metadata.name=other", token=LIMITED_TOKEN)
    assert reply.message.startswith('configmaps "other" is forbidden: ')


async def test_a_binding_to_a_missing_role_is_reported(harness: ServerHarness) -> None:
    await grant(harness, "r", [reading("pods")])
    await harness.delete(f"{HERE}/roles/r")
    reply = await harness.get(PODS, token=LIMITED_TOKEN)
    assert reply.message.endswith(': rbac: RBAC: role.rbac.authorization.k8s.io "r" not found')


async def test_paths_are_escaped_for_html(harness: ServerHarness) -> None:
    reply = await harness.get("/a%3Cb%3E%26%22", token=LIMITED_TOKEN)
    assert reply.message == 'forbidden: User "limited" cannot get path "/a&lt;b&gt;&amp;\\""'
