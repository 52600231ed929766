"""Roles and bindings at work, through the front door."""

from __future__ import annotations

from typing import Any

from front_door import LIMITED_TOKEN, FrontDoor

RBAC = "/apis/rbac.authorization.k8s.io/v1"
HERE = f"{RBAC}/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"


def reading(*resources: str, **more: Any) -> dict[str, Any]:
    return {"apiGroups": [""], "resources": list(resources), "verbs": ["get", "list"], **more}


async def grant(door: FrontDoor, name: str, rules: list[dict[str, Any]], *subjects: dict[str, str]) -> None:
    await door.make(f"{HERE}/roles", {"metadata": {"name": name}, "rules": rules})
    await door.make(
        f"{HERE}/rolebindings",
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": list(subjects) or [{"kind": "User", "name": "limited"}],
        },
    )


async def status_of(door: FrontDoor, path: str = PODS) -> int:
    return (await door.get(path, token=LIMITED_TOKEN)).status


async def test_nothing_is_allowed_until_somebody_allows_it(door: FrontDoor) -> None:
    reply = await door.get(PODS, token=LIMITED_TOKEN)
    assert reply.status == 403
    assert reply.message == (
        'pods is forbidden: User "limited" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    await grant(door, "r", [reading("pods")])
    assert await status_of(door) == 200
    assert await status_of(door, "/api/v1/pods") == 403
    assert await status_of(door, "/api/v1/namespaces/other/pods") == 403


async def test_every_change_counts_at_once(door: FrontDoor) -> None:
    await grant(door, "r", [reading("pods")])
    assert await status_of(door) == 200
    await door.patch(f"{HERE}/roles/r", {"rules": [reading("configmaps")]})
    assert await status_of(door) == 403
    await door.patch(f"{HERE}/roles/r", {"rules": [reading("pods")]})
    assert await status_of(door) == 200
    await door.patch(f"{HERE}/rolebindings/r", {"subjects": [{"kind": "User", "name": "x"}]})
    assert await status_of(door) == 403
    await door.patch(f"{HERE}/rolebindings/r", {"subjects": [{"kind": "Group", "name": "some-group"}]})
    assert await status_of(door) == 200
    await door.delete(f"{HERE}/rolebindings/r")
    assert await status_of(door) == 403


async def test_a_cluster_role_bound_in_a_namespace_holds_there(door: FrontDoor) -> None:
    await door.make(f"{RBAC}/clusterroles", {"metadata": {"name": "c"}, "rules": [reading("pods", "nodes")]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "c"}
    subjects = [{"kind": "User", "name": "limited"}]
    await door.make(f"{HERE}/rolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})
    assert await status_of(door) == 200
    assert await status_of(door, "/api/v1/nodes") == 403
    await door.make(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": role, "subjects": subjects})
    assert await status_of(door, "/api/v1/nodes") == 200
    assert await status_of(door, "/api/v1/namespaces/other/pods") == 200


async def test_a_name_in_the_field_selector_is_the_name_that_is_asked_for(door: FrontDoor) -> None:
    await grant(door, "r", [reading("configmaps", resourceNames=["only"])])
    path = "/api/v1/namespaces/default/configmaps"
    assert await status_of(door, path) == 403
    assert await status_of(door, f"{path}?fieldSelector=metadata.name=only") == 200
    reply = await door.get(f"{path}?fieldSelector=metadata.name=other", token=LIMITED_TOKEN)
    assert reply.message.startswith('configmaps "other" is forbidden: ')


async def test_a_binding_to_a_role_that_is_not_there_is_told(door: FrontDoor) -> None:
    await grant(door, "r", [reading("pods")])
    await door.delete(f"{HERE}/roles/r")
    reply = await door.get(PODS, token=LIMITED_TOKEN)
    assert reply.message.endswith(': rbac: RBAC: role.rbac.authorization.k8s.io "r" not found')


async def test_what_a_path_holds_is_fit_for_a_page(door: FrontDoor) -> None:
    reply = await door.get("/a%3Cb%3E%26%22", token=LIMITED_TOKEN)
    assert reply.message == 'forbidden: User "limited" cannot get path "/a&lt;b&gt;&amp;\\""'
