from datetime import UTC, datetime
from typing import Any

from setpoint.kinds.bootstrap import initial_objects, rbac

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def by_name(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return {obj["metadata"]["name"]: obj for obj in objects}


def test_every_controller_role_is_bound_to_its_own_account() -> None:
    roles, bindings = by_name(rbac.cluster_roles()), by_name(rbac.cluster_role_bindings())
    controllers = [name for name in roles if name.startswith("system:controller:")]
    assert len(controllers) > 30
    for name in controllers:
        account = name.removeprefix("system:controller:")
        assert bindings[name]["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}]


def test_every_binding_points_to_a_role_that_exists() -> None:
    roles = by_name(rbac.cluster_roles())
    assert all(binding["roleRef"]["name"] in roles for binding in rbac.cluster_role_bindings())
    local = {(role["metadata"]["namespace"], role["metadata"]["name"]) for role in rbac.roles()}
    for binding in rbac.role_bindings():
        assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) in local


def test_admin_aggregates_the_labelled_roles() -> None:
    roles = by_name(rbac.cluster_roles())
    assert roles["admin"]["rules"] is None
    label = "rbac.authorization.k8s.io/aggregate-to-admin"
    assert roles["admin"]["aggregationRule"] == {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
    summed = {name for name, role in roles.items() if label in role["metadata"]["labels"]}
    assert summed == {"edit", "system:aggregate-to-admin"}


def test_edit_cannot_write_endpoints() -> None:
    rules = by_name(rbac.cluster_roles())["system:aggregate-to-edit"]["rules"]
    assert not any("endpoints" in rule["resources"] for rule in rules)


def test_nodes_have_a_binding_without_subjects() -> None:
    assert "subjects" not in by_name(rbac.cluster_role_bindings())["system:node"]


def test_each_call_returns_new_objects() -> None:
    rbac.cluster_roles()[3]["rules"].clear()
    assert rbac.cluster_roles()[3]["rules"]


def test_every_flow_schema_has_a_level() -> None:
    levels = by_name(initial_objects.priority_levels())
    schemas = initial_objects.flow_schemas()
    assert {schema["spec"]["priorityLevelConfiguration"]["name"] for schema in schemas} == set(levels)
    assert levels["catch-all"]["spec"]["limited"]["limitResponse"] == {"type": "Reject"}
    assert initial_objects.dangling_status("x", False, NOW)["conditions"][0]["status"] == "True"


def test_the_rest() -> None:
    assert initial_objects.namespaces()[0]["metadata"]["name"] == "default"
    assert by_name(initial_objects.priority_classes())["system-node-critical"]["value"] == 2000001000
    core = by_name(initial_objects.api_services())["v1."]
    assert core["spec"] == {"version": "v1", "groupPriorityMinimum": 18000, "versionPriority": 1}
    custom = initial_objects.custom_api_service("stable.example.com", "v2")
    assert custom["metadata"]["name"] == "v2.stable.example.com"
    assert initial_objects.local_status(NOW)["conditions"][0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
