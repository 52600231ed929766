"""With any single fault, clusters end as declared, with the password that was chosen first."""

from __future__ import annotations

from itertools import count
from typing import Any

from effort import tries
from examples.postgres_operator import PostgresCluster, postgres_operator

from setpoint.meta.objects import Obj
from setpoint.sdk import Operator
from setpoint.testing import Exploration, VirtualCluster

PG = PostgresCluster.ref


class Passwords:
    """Each is another, also after a restart."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.seen: set[str] = set()

    def __call__(self) -> str:
        return f"password-{next(self._numbers)}"

    def state(self) -> None:
        return None


def operator(passwords: Passwords) -> Operator:
    return postgres_operator(passwords)


def postgres(name: str, **spec: Any) -> Obj:
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": PG[0], "kind": PG[1], "metadata": meta, "spec": {"engineVersion": "16", **spec}}


async def phase(cluster: VirtualCluster, name: str, *phases: str) -> bool:
    found = await cluster.client.get(PG, name, "default")
    status = found.get("status", {})
    caught_up = status.get("observedGeneration") == found["metadata"]["generation"]
    return caught_up and status.get("phase") in phases


async def look_at_the_password(cluster: VirtualCluster, passwords: Passwords) -> None:
    """Whenever one looks, it is the same."""
    found = await cluster.client.get(("v1", "Secret"), "orders-password", "default")
    passwords.seen.add(found["data"]["password"])
    assert len(passwords.seen) == 1


async def on_paper(cluster: VirtualCluster, passwords: Passwords) -> None:
    """Nobody runs the instances: what is explored is which objects there are."""
    replication = {"enabled": True, "replicaCount": 3}
    await cluster.client.create(postgres("orders", replication=replication, backupSchedule="0 3 * * *"))
    await cluster.until(lambda: phase(cluster, "orders", "Creating"), within=300, every=2)
    await look_at_the_password(cluster, passwords)
    changed = {"replication": {"enabled": True, "replicaCount": 1}, "backupSchedule": None, "engineVersion": "17"}
    await cluster.client.patch(PG, "orders", {"spec": changed}, "default")
    await cluster.client.create(postgres("gone", skipFinalBackup=True))
    await cluster.until(lambda: phase(cluster, "gone", "Creating"), within=300, every=2)
    await cluster.client.delete(PG, "gone", "default")


COMMON: Obj = {
    "outside": Passwords,
    "check": look_at_the_password,
    "leave_out": (
        "secrets:data.password",
        "secrets:data.replicationPassword",
    ),  # one that was chosen and never written is no loss
}


def exploration() -> Exploration:
    return Exploration(operator, on_paper, **COMMON, controllers=("garbage-collector-controller",), scheduler=False)


def test_the_end_state_has_the_same_objects() -> None:
    exploration().explore(limit=5)


async def for_real(cluster: VirtualCluster, passwords: Passwords) -> None:
    """Storage grows under running instances, and what is deleted is backed up first."""

    async def ready(name: str) -> bool:
        return await phase(cluster, name, "Running")

    await cluster.client.create(postgres("orders"))
    await cluster.client.create(postgres("gone"))
    await cluster.until(lambda: ready("orders"), within=300, every=2)
    await look_at_the_password(cluster, passwords)
    await cluster.client.patch(PG, "orders", {"spec": {"storageSize": "2Gi"}}, "default")
    await cluster.until(lambda: ready("gone"), within=300, every=2)
    await cluster.client.delete(PG, "gone", "default")


def whole_exploration() -> Exploration:
    return Exploration(operator, for_real, **COMMON, nodes=1)


def test_scaling_and_deletion() -> None:
    whole_exploration().explore(faults=("crash-after",), limit=tries(1, 20))
