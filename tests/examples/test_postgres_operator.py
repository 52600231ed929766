"""The PostgreSQL operator on a whole cluster in virtual time."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from itertools import count
from typing import Any

import orjson
import pytest
import yaml
from examples.postgres_operator import PostgresCluster, postgres_operator

from setpoint.client.client import TABLE
from setpoint.meta.objects import Obj
from setpoint.sdk import Invalid, NotFound, Operator, is_true
from setpoint.testing import VirtualCluster, prepared, virtual

PG = PostgresCluster.ref
STATEFUL_SET, JOB, CLAIM = ("apps/v1", "StatefulSet"), ("batch/v1", "Job"), ("v1", "PersistentVolumeClaim")
STORAGE_CLASS = ("storage.k8s.io/v1", "StorageClass")
SECRET, CRON_JOB, BUDGET = ("v1", "Secret"), ("batch/v1", "CronJob"), ("policy/v1", "PodDisruptionBudget")


def replicas(count: int) -> Obj:
    return {"enabled": True, "replicaCount": count}


def orders(**spec: Any) -> Obj:
    meta = {"name": "orders", "namespace": "default"}
    return {
        "apiVersion": PG[0],
        "kind": PG[1],
        "metadata": meta,
        "spec": {"engineVersion": "16", "replication": replicas(2), "backupSchedule": "0 3 * * *", **spec},
    }


NO_JOBS = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "no-jobs", "namespace": "default"},
    "spec": {"hard": {"count/jobs.batch": "0"}},
}


def counting_passwords() -> Callable[[], str]:
    """Each is another: a second one would be seen."""
    numbers = count(1)
    return lambda: f"password-{next(numbers)}"


def operator() -> Operator:
    return postgres_operator(counting_passwords())


@prepared(nodes=1)
async def running_orders(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.create(orders())
        await cluster.settle(quiet=10)


async def get(cluster: VirtualCluster) -> Obj:
    return await cluster.client.get(PG, "orders", "default")


async def change(cluster: VirtualCluster, **spec: Any) -> None:
    await cluster.client.patch(PG, "orders", {"spec": spec}, "default")


async def names(cluster: VirtualCluster, resource: tuple[str, str], selector: str = "") -> set[str]:
    return {each["metadata"]["name"] for each in await cluster.all(resource, selector=selector)}


@virtual(start=running_orders)
async def test_a_cluster_becomes_ready(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        found = await get(cluster)
        assert is_true(found, "Ready")
        status = found["status"]
        assert (status["phase"], status["replicas"], status["readyReplicas"]) == ("Running", 2, 2)
        assert status["endpoints"]["primary"] == "orders.default.svc:5432"
        assert {"orders", "orders-read", "orders-pods"} <= await names(cluster, ("v1", "Service"))
        assert await names(cluster, CLAIM) == {"data-orders-0", "data-orders-1", "orders-backups"}
        assert await names(cluster, BUDGET) == {"orders"}
        behind = {
            each["metadata"]["labels"]["kubernetes.io/service-name"]: len(each["endpoints"])
            for each in await cluster.all(("discovery.k8s.io/v1", "EndpointSlice"))
        }
        assert behind == {"kubernetes": 1, "orders": 1, "orders-read": 2, "orders-pods": 2}
        await cluster.advance("5m")
        assert await get(cluster) == found, "at rest nothing is written"


@virtual(start=running_orders)
async def test_backups_run_on_schedule_and_are_reported(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        assert "lastBackup" not in (await get(cluster))["status"]
        await change(cluster, replication=replicas(1), backupSchedule="* * * * *")
        await cluster.advance("1m10s")
        assert (await get(cluster))["status"]["lastBackup"].startswith("2026-01-01T00:0")
        await change(cluster, backupSchedule=None)
        await cluster.settle()
        assert await names(cluster, CRON_JOB) == set()
        assert await names(cluster, BUDGET) == set(), "there is nothing to protect"


@virtual(start=running_orders)
async def test_manual_changes_are_reverted(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.patch(STATEFUL_SET, "orders", {"spec": {"replicas": 1}}, "default")
        await cluster.client.delete(("v1", "Service"), "orders", "default")
        await cluster.client.patch(("v1", "ConfigMap"), "orders-config", {"data": {"pg_hba.conf": "trust"}}, "default")
        await cluster.client.delete(BUDGET, "orders", "default")
        await cluster.settle(quiet=10)
        assert is_true(await get(cluster), "Ready")
        assert (await cluster.client.get(STATEFUL_SET, "orders", "default"))["spec"]["replicas"] == 2
        assert await cluster.find(("v1", "Service"), "orders")
        config = await cluster.client.get(("v1", "ConfigMap"), "orders-config", "default")
        assert "scram" in config["data"]["pg_hba.conf"]
        assert await cluster.find(BUDGET, "orders")


async def password(cluster: VirtualCluster) -> str:
    found = await cluster.client.get(SECRET, "orders-password", "default")
    return b64decode(found["data"]["password"]).decode()


@virtual(start=running_orders)
async def test_the_password_is_chosen_once(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        assert await password(cluster) == "password-1"
        with pytest.raises(Invalid, match="immutable"):
            await cluster.client.patch(SECRET, "orders-password", {"data": {"password": "eA=="}}, "default")
        await cluster.client.delete(SECRET, "orders-password", "default")
        await cluster.client.delete(STATEFUL_SET, "orders", "default")
        await cluster.settle(quiet=10)
        assert await password(cluster) == "password-1", "whoever deletes it does not get far"
        assert is_true(await get(cluster), "Ready")


@virtual(start=running_orders)
async def test_an_upgrade_restarts_the_primary_last(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()), cluster.client.watch(PG, "default") as watch:
        await change(cluster, engineVersion="17")
        phases: list[str] = []
        async for _, obj in watch:
            phases.append(obj["status"]["phase"])
            if "Updating" in phases and phases[-1] == "Running":
                break
        went = [text for _, reason, text in await cluster.events("orders") if reason == "SuccessfulDelete"]
        assert [text.split()[2] for text in went] == ["orders-1", "orders-0"]
        images = {each["spec"]["containers"][0]["image"] for each in await cluster.all(("v1", "Pod"))}
        assert images == {"postgres:17"}


@virtual(start=running_orders)
async def test_storage_grows_under_running_instances(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        before = {each["metadata"]["uid"] for each in await cluster.all(("v1", "Pod"))}
        await cluster.client.patch(STORAGE_CLASS, "standard", {"allowVolumeExpansion": False})
        await change(cluster, storageSize="1024Gi")
        await cluster.settle(quiet=10)
        found = await get(cluster)
        (grown,) = (each for each in found["status"]["conditions"] if each["type"] == "StorageGrown")
        assert (grown["status"], grown["reason"]) == ("False", "Refused")
        assert is_true(found, "Ready"), "everything else goes on"

        await cluster.client.patch(STORAGE_CLASS, "standard", {"allowVolumeExpansion": True})
        await cluster.advance("1m10s")
        claims = await cluster.all(CLAIM, selector="database.example.com/cluster=orders")
        assert [each["status"]["capacity"]["storage"] for each in claims] == ["1Ti"] * 2
        assert {each["metadata"]["uid"] for each in await cluster.all(("v1", "Pod"))} == before, "nobody was restarted"
        (template,) = (await cluster.client.get(STATEFUL_SET, "orders", "default"))["spec"]["volumeClaimTemplates"]
        assert template["spec"]["resources"]["requests"]["storage"] == "1Ti"
        assert (await get(cluster))["status"]["phase"] == "Running"
        await cluster.client.patch(PG, "orders", {"spec": {"replicas": 3}}, "default", subresource="scale")
        await cluster.settle(quiet=10)
        assert (await get(cluster))["status"]["readyReplicas"] == 3


@virtual(start=running_orders)
async def test_a_final_backup_precedes_deletion(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.delete(PG, "orders", "default", propagation="Foreground")
        await cluster.settle(quiet=30)
        assert await cluster.find(PG, "orders") is None
        (job,) = await cluster.all(JOB)
        assert is_true(job, "Complete")
        assert await names(cluster, CLAIM) == {"orders-backups"}, "backups outlive the cluster"
        assert await names(cluster, SECRET, "app.kubernetes.io/name=postgres") == set()
        assert await names(cluster, ("v1", "Pod"), "app.kubernetes.io/component=instance") == set()


@virtual(start=running_orders)
async def test_orphaned_instances_keep_their_data(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await change(cluster, skipFinalBackup=True)
        await cluster.client.delete(PG, "orders", "default", propagation="Orphan")
        await cluster.settle(quiet=10)
        assert await cluster.find(PG, "orders") is None
        assert {"data-orders-0", "data-orders-1"} <= await names(cluster, CLAIM)
        assert not any(each["metadata"].get("deletionTimestamp") for each in await cluster.all(CLAIM))
        assert await password(cluster) == "password-1"


@virtual(nodes=0)
async def test_a_failed_final_backup_delays_deletion(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.create(orders())
        await cluster.settle(quiet=10)
        assert (await get(cluster))["status"]["phase"] == "Creating", "there are no nodes"
        await cluster.client.delete(PG, "orders", "default")
        await cluster.settle(quiet=10)
        assert (await get(cluster))["status"]["phase"] == "Deleting"
        await cluster.client.create(NO_JOBS)
        await cluster.settle()
        await cluster.client.delete_collection(JOB, "default", propagation="Background")
        await cluster.advance("2m")
        (final,) = (each for each in (await get(cluster))["status"]["conditions"] if each["type"] == "FinalBackup")
        assert (final["reason"], "exceeded quota" in final["message"]) == ("Refused", True)
        await change(cluster, skipFinalBackup=True)
        await cluster.settle(quiet=10)
        assert await cluster.find(PG, "orders") is None


@virtual(start=running_orders)
async def test_deleting_a_namespace_deletes_its_clusters(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        await cluster.client.create(
            {**orders(replication=replicas(1)), "metadata": {"name": "orders", "namespace": "shop"}}
        )
        await cluster.settle(quiet=10)
        await cluster.client.delete(("v1", "Namespace"), "shop")
        await cluster.settle(quiet=30)
        with pytest.raises(NotFound):
            await cluster.client.get(("v1", "Namespace"), "shop")


PRODUCTION = """
apiVersion: database.example.com/v1alpha1
kind: PostgresCluster
metadata:
  name: production-db
spec:
  engineVersion: "15.3"
  storageSize: 100Gi
  replication:
    enabled: true
    replicaCount: 2
  backupSchedule: "0 2 * * *"
"""


@virtual(nodes=3)
async def test_printer_columns_of_a_cluster(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.create(yaml.safe_load(PRODUCTION), namespace="default")
        await cluster.settle(quiet=10)
        path = "/apis/database.example.com/v1alpha1/namespaces/default/postgresclusters"
        table = orjson.loads((await cluster.client.sender.request("GET", path, accept=TABLE)).body)
        [row] = table["rows"]
        shown = dict(zip((each["name"] for each in table["columnDefinitions"]), row["cells"]))
        assert {name: shown[name] for name in ("Name", "Phase", "Ready", "Version", "Size")} == {
            "Name": "production-db",
            "Phase": "Running",
            "Ready": "2/2",
            "Version": "15.3",
            "Size": "100Gi",
        }
        assert shown["Message"] == "2 of 2 instances are ready"
        found = await cluster.client.get(STATEFUL_SET, "production-db", "default")
        assert found["spec"]["replicas"] == 2
        backup = await cluster.client.get(CRON_JOB, "production-db-backup", "default")
        assert backup["spec"]["schedule"] == "0 2 * * *"


@virtual(nodes=3)
async def test_without_replication_one_instance_runs(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.create(orders(replication={"enabled": False, "replicaCount": 4}))
        await cluster.settle(quiet=10)
        assert (await cluster.client.get(PG, "orders", "default"))["status"]["ready"] == "1/1"


REFUSED: list[tuple[Obj, str]] = [
    ({"storageSize": "512Mi"}, "storage can grow, never shrink"),
    ({"engineVersion": "15.9"}, "cannot go back to 15.9 from 16"),
    ({"engineVersion": "latest"}, "engineVersion"),
    ({"replication": {"replicaCount": 1, "synchronous": True}}, "synchronous replication needs"),
    ({"replication": replicas(0)}, "greater than or equal to 1"),
]


@virtual(nodes=0, controllers=())
async def test_invalid_specs_are_rejected(cluster: VirtualCluster) -> None:
    async with cluster.running(operator()):
        await cluster.client.create(orders())
        for spec, problem in REFUSED:
            with pytest.raises(Invalid, match=problem):
                await change(cluster, **spec)
