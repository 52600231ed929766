"""Storage version migrations rewrite objects in the current storage version."""

from __future__ import annotations

from setpoint.client.resources import builtin
from setpoint.controllers.storage_migration import progress
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual

MIGRATIONS = builtin("storageversionmigrations", "storagemigration.k8s.io")
ALONE = virtual(nodes=0, scheduler=False, controllers=["storage-version-migrator-controller"])


def migration(name: str, resource: str, group: str = "") -> Obj:
    return {
        "apiVersion": "storagemigration.k8s.io/v1",
        "kind": "StorageVersionMigration",
        "metadata": {"name": name},
        "spec": {"resource": {"group": group, "resource": resource}},
    }


async def conditions(cluster: VirtualCluster, name: str) -> dict[str, tuple[str, str, str]]:
    found = await cluster.client.get(MIGRATIONS, name)
    return {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in (found.get("status") or {}).get("conditions") or ()
    }


@ALONE
async def test_a_migration_runs_and_reports_its_progress(cluster: VirtualCluster) -> None:
    for number in range(3):
        meta = {"name": f"m{number}", "namespace": "default"}
        await cluster.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    await cluster.client.create(migration("maps", "configmaps"))
    await cluster.sleep(5)
    assert await conditions(cluster, "maps") == {
        "Running": ("False", "MigrationCompleted", "Migration completed"),
        "Succeeded": ("True", "StorageVersionMigrationSucceeded", "Migration completed"),
    }
    assert (await cluster.client.get(MIGRATIONS, "maps"))["status"]["resourceVersion"]


@ALONE
async def test_two_migrations_of_one_resource_run_in_sequence(cluster: VirtualCluster) -> None:
    await cluster.client.create(migration("first", "configmaps"))
    await cluster.client.create(migration("second", "configmaps"))
    await cluster.sleep(5)
    for name in ("first", "second"):
        assert (await conditions(cluster, name))["Succeeded"][0] == "True"
    revisions = [
        (await cluster.client.get(MIGRATIONS, name))["status"]["resourceVersion"] for name in ("first", "second")
    ]
    assert int(revisions[0]) < int(revisions[1])


@ALONE
async def test_a_migration_of_an_unknown_resource_fails_after_a_grace_period(cluster: VirtualCluster) -> None:
    await cluster.client.create(migration("none", "gadgets", "example.com"))
    await cluster.sleep(30)
    assert set(await conditions(cluster, "none")) == {"Running"}
    await cluster.sleep(60)
    found = await conditions(cluster, "none")
    assert found["Failed"] == ("True", "StorageVersionMigrationFailed", "resource does not exist in discovery")
    assert found["Running"][0] == "False"


@ALONE
async def test_a_read_only_resource_cannot_be_migrated(cluster: VirtualCluster) -> None:
    await cluster.client.create(migration("none", "componentstatuses"))
    await cluster.sleep(5)
    assert (await conditions(cluster, "none"))["Failed"][2] == (
        'resource "/v1, Resource=componentstatuses" does not support discovery operations: [update patch list]'
    )


def test_progress_messages() -> None:
    assert progress() == progress(0, 0) == "The migration is running"
    assert progress(2, 5) == "The migration is running, 2/5 objects not yet migrated"
    assert progress(0, 5) == "The migration is running, 5 objects verified migrated"
    assert progress(1, 2, "slow down").endswith("; transient error: slow down")


def definition(*versions: str, stored: str) -> Obj:
    """Return a definition that serves these versions and stores one of them."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [
                {"name": name, "served": True, "storage": name == stored, "schema": schema} for name in versions
            ],
        },
    }


@ALONE
async def test_stored_versions_of_a_definition_are_pruned_after_a_migration(cluster: VirtualCluster) -> None:
    definitions = builtin("customresourcedefinitions", "apiextensions.k8s.io")
    await cluster.client.create(definition("v1", stored="v1"))
    await cluster.sleep(5)
    for name in ("one", "two"):
        meta = {"name": name, "namespace": "default"}
        await cluster.client.create({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": meta})
    spec = definition("v1", "v2", stored="v2")["spec"]
    await cluster.client.patch(definitions, "gadgets.example.com", {"spec": {"versions": spec["versions"]}})
    await cluster.sleep(5)
    before = (await cluster.client.get(definitions, "gadgets.example.com"))["status"]
    assert before["storedVersions"] == ["v1", "v2"]
    await cluster.client.create(migration("gadgets", "gadgets", "example.com"))
    await cluster.sleep(30)
    assert (await conditions(cluster, "gadgets"))["Succeeded"][0] == "True"
    status = (await cluster.client.get(definitions, "gadgets.example.com"))["status"]
    assert status["storedVersions"] == ["v2"]
    (found,) = [each for each in status["conditions"] if each["type"] == "StorageMigrating"]
    assert (found["status"], found["reason"]) == ("False", "MigrationSucceeded")
    assert found["message"] == "The migration has succeeded and the stored versions have been updated"
    assert {each["type"] for each in status["conditions"]} >= {"Established", "NamesAccepted"}
