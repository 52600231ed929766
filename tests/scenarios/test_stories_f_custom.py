"""Story F1: a definition with a schema, and its objects, with every component running."""

from __future__ import annotations

from typing import Any

import pytest
from postgres_cluster import KIND, definition, postgres

from setpoint.client.kubeconfig import Impersonation
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError, Forbidden, Invalid, NotFound
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

CRDS = builtin("customresourcedefinitions", "apiextensions.k8s.io")
CONFIG_MAPS, NAMESPACES, QUOTAS = builtin("configmaps"), builtin("namespaces"), builtin("resourcequotas")


async def define(cluster: VirtualCluster) -> None:
    await cluster.client.create(definition())

    async def established() -> bool:
        found = await cluster.client.get(CRDS, "postgresclusters.db.example.com")
        conditions = found["status"].get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    await cluster.until(established)


def child(name: str, owner: Obj, **more: Any) -> Obj:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **more,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [reference]},
    }


@virtual(nodes=0)
async def test_f1_a_definition_adds_a_kind_with_a_schema(cluster: VirtualCluster) -> None:
    await define(cluster)
    made = await cluster.client.create(postgres(unknown="x", backupSchedule=None))
    assert made["spec"] == {
        "engineVersion": "16",
        "backupSchedule": None,
        "storageSize": "1Gi",
        "replicas": 1,
        "maxReplicas": 5,
    }
    with pytest.raises(Invalid, match="too many replicas"):
        await cluster.client.create(postgres("big", replicas=9))
    with pytest.raises(Invalid, match=r'spec\.engineVersion: Unsupported value: "9"'):
        await cluster.client.create(postgres("old", engineVersion="9"))
    with pytest.raises(Invalid, match="cannot go back to 15"):
        await cluster.client.patch(KIND, "orders", {"spec": {"engineVersion": "15"}}, "default")
    await cluster.client.patch(KIND, "orders", {"status": {"ready": 1}}, "default", subresource="status")
    await cluster.client.patch(KIND, "orders", {"spec": {"replicas": 3}}, "default", subresource="scale")
    found = await cluster.client.get(KIND, "orders", "default")
    assert (found["spec"]["replicas"], found["status"], found["metadata"]["generation"]) == (3, {"ready": 1}, 2)
    selected = await cluster.client.list(KIND, "default", field_selector="spec.engineVersion=16")
    assert [item["metadata"]["name"] for item in selected.items] == ["orders"]


@virtual(nodes=0)
async def test_f1_dependents_of_a_custom_object_are_deleted(cluster: VirtualCluster) -> None:
    await define(cluster)
    owner = await cluster.client.create(postgres())
    await cluster.client.create(child("settings", owner))
    blocking = child("data", owner, blockOwnerDeletion=True)
    await cluster.client.create(blocking)
    await cluster.sleep(40)  # the collector has heard of the new kind
    await cluster.client.delete(KIND, "orders", "default", propagation="Foreground")
    await cluster.sleep(30)
    assert await cluster.find(KIND, "orders") is None
    assert [one for one in await cluster.all(CONFIG_MAPS) if one["metadata"].get("ownerReferences")] == []
    other = await cluster.client.create(postgres("other"))
    await cluster.client.create(child("kept", other))
    await cluster.client.delete(KIND, "other", "default", propagation="Orphan")
    await cluster.sleep(30)
    kept = await cluster.client.get(CONFIG_MAPS, "kept", "default")
    assert "ownerReferences" not in kept["metadata"]


@virtual(nodes=0)
async def test_f1_custom_objects_can_be_owned(cluster: VirtualCluster) -> None:
    await define(cluster)
    await cluster.sleep(40)
    parent = await cluster.client.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "parent", "namespace": "default"}}
    )
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": parent["metadata"]["uid"]}
    owned = postgres()
    owned["metadata"]["ownerReferences"] = [reference]
    await cluster.client.create(owned)
    await cluster.client.delete(CONFIG_MAPS, "parent", "default")
    await cluster.sleep(30)
    assert await cluster.find(KIND, "orders") is None


@virtual(nodes=0)
async def test_f1_custom_objects_are_deleted_with_their_namespace(cluster: VirtualCluster) -> None:
    await define(cluster)
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await cluster.client.create(postgres("orders", "shop"))
    await cluster.client.delete(NAMESPACES, "shop")
    await cluster.sleep(30)
    assert await cluster.find(NAMESPACES, "shop", "") is None
    assert await cluster.find(KIND, "orders", "shop") is None
    with pytest.raises(ApiError):
        await cluster.client.create(postgres("late", "shop"))


@virtual(nodes=0)
async def test_f1_quotas_count_custom_objects(cluster: VirtualCluster) -> None:
    await define(cluster)
    hard = {"count/postgresclusters.db.example.com": "2"}
    await cluster.client.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few", "namespace": "default"},
            "spec": {"hard": hard},
        }
    )
    await cluster.sleep(40)
    await cluster.client.create(postgres("one"))
    await cluster.client.create(postgres("two"))
    with pytest.raises(Forbidden, match="exceeded quota: few"):
        await cluster.client.create(postgres("three"))
    await cluster.client.delete(KIND, "one", "default")
    await cluster.sleep(10)
    used = (await cluster.client.get(QUOTAS, "few", "default"))["status"]["used"]
    assert used == {"count/postgresclusters.db.example.com": "1"}


@virtual(nodes=0)
async def test_f1_roles_apply_to_custom_objects(cluster: VirtualCluster) -> None:
    await define(cluster)
    await cluster.client.create(postgres())
    rule = {"apiGroups": ["db.example.com"], "resources": ["postgresclusters"], "verbs": ["get"]}
    meta = {"name": "reader", "namespace": "default"}
    rbac = "rbac.authorization.k8s.io"
    await cluster.client.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]})
    await cluster.client.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "jane"}],
        }
    )
    jane = cluster.client.named("jane", Impersonation("jane"))
    resource = await cluster.client.resource(KIND)
    assert (await jane.get(resource, "orders", "default"))["kind"] == "PostgresCluster"
    with pytest.raises(Forbidden, match=r'cannot delete resource "postgresclusters" in API group "db\.example\.com"'):
        await jane.delete(resource, "orders", "default")
    with pytest.raises(Forbidden):
        await jane.patch(resource, "orders", {"status": {"ready": 1}}, "default", subresource="status")


@virtual(nodes=0)
async def test_f1_deleting_a_definition_deletes_its_objects(cluster: VirtualCluster) -> None:
    await define(cluster)
    await cluster.client.create(postgres())
    await cluster.client.delete(CRDS, "postgresclusters.db.example.com")
    await cluster.sleep(10)
    assert await cluster.find(CRDS, "postgresclusters.db.example.com", "") is None
    resource = await cluster.client.resource(KIND)
    with pytest.raises(NotFound):
        await cluster.client.list(resource, "default")
    await define(cluster)
    assert (await cluster.client.list(resource, "default")).items == []
    # The loops that follow all kinds come to rest again.
    await cluster.sleep(60)
    await cluster.client.create(postgres())
    await cluster.client.delete(KIND, "orders", "default")
