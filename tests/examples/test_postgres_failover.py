"""The choice of the primary, on simulated nodes and with instances whose part the test plays."""

from __future__ import annotations

from typing import Any, cast

import pytest
from examples.postgres_operator import PostgresCluster, postgres_operator
from examples.postgres_operator.failover import DURATION, WAIT_FOR_POSITIONS, Choice, choose
from examples.postgres_operator.instance import POSITION, Api, Instance, Postgres

from setpoint.meta.objects import Obj
from setpoint.sdk import is_true
from setpoint.testing import VirtualCluster, virtual

PG = PostgresCluster.ref
POD, LEASE = ("v1", "Pod"), ("coordination.k8s.io/v1", "Lease")


def pod(number: int, position: str = "", *, ready: bool = True, ending: bool = False) -> Obj:
    meta: Obj = {"name": f"db-{number}", "uid": f"u{number}", "annotations": {POSITION: position} if position else {}}
    if ending:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": meta, "status": {"conditions": conditions}}


def lease(holder: str = "", *, renewed: bool = True) -> Obj:
    spec: Obj = {"leaseDurationSeconds": DURATION, "leaseTransitions": 3}
    spec |= {"holderIdentity": holder} if holder else {}
    spec |= {"renewTime": "2026-01-01T00:00:00.000000Z"} if renewed else {}
    return {"spec": spec}


EXPIRED = DURATION + 1.0
CHOICES: dict[str, tuple[Obj, list[Obj], float, str]] = {
    "the first one": (lease(renewed=False), [pod(1), pod(0, ready=False)], 0, "db-1_u1"),
    "the first one if none is ready": (lease(renewed=False), [pod(1, ready=False), pod(0, ready=False)], 0, "db-0_u0"),
    "no other one while it starts": (lease("db-0_u0", renewed=False), [pod(0, ready=False), pod(1)], 99, ""),
    "another one if it is gone before it had data": (lease("db-0_old", renewed=False), [pod(0), pod(1)], 0, "db-0_u0"),
    "no other one before the Lease has expired": (lease("db-0_old"), [pod(1, "3 1 9")], DURATION - 0.1, ""),
    "the most advanced one": (lease("db-0_u0"), [pod(0), pod(1, "3 1 9"), pod(2, "3 1 10")], EXPIRED, "db-2_u2"),
    "the one on the latest timeline": (lease("db-0_u0"), [pod(1, "3 1 10"), pod(2, "3 2 9")], EXPIRED, "db-2_u2"),
    "none by positions of earlier terms": (lease("db-0_u0"), [pod(1, "2 1 9")], 99, ""),
    "none without data": (lease("db-0_u0"), [pod(1)], 99, ""),
    "none that is ending": (lease(), [pod(0, "3 1 9", ending=True)], 99, ""),
    "none before all have reported": (lease(), [pod(1, "3 1 9"), pod(2)], 1, ""),
    "one of those that have reported in time": (lease(), [pod(1, "3 1 9"), pod(2)], WAIT_FOR_POSITIONS, "db-1_u1"),
    "one at once after a release": (lease(), [pod(0, ready=False), pod(1, "3 1 9")], 0, "db-1_u1"),
    "none by a malformed position": (lease(), [pod(1, "3 x 9"), pod(2, "3")], 99, ""),
}


@pytest.mark.parametrize("case", CHOICES)
def test_choice(case: str) -> None:
    found, pods, unchanged, expected = CHOICES[case]
    assert choose(found, pods, unchanged).holder == expected


def test_a_lease_without_a_primary_is_looked_at_again() -> None:
    assert choose(lease("db-0_u0"), [pod(0)], 1.0) == Choice(look_again=DURATION / 2)
    assert choose(lease(), [], 1.0) == Choice(look_again=1.0, vacant=True)


# -- the operator -----------------------------------------------------------------------------------------------------


async def create_orders(cluster: VirtualCluster) -> None:
    await cluster.client.create(
        {
            "apiVersion": PG[0],
            "kind": PG[1],
            "metadata": {"name": "orders", "namespace": "default"},
            "spec": {"engineVersion": "16", "replication": {"enabled": True, "replicaCount": 3}},
        }
    )
    await cluster.settle(quiet=10)


async def primary(cluster: VirtualCluster) -> tuple[str, list[str], list[str]]:
    """Return the primary of the status, the Pods with its label, and those behind its Service."""
    status = (await cluster.client.get(PG, "orders", "default"))["status"]
    labelled = await cluster.all(POD, selector="database.example.com/role=primary")
    slices = await cluster.all(("discovery.k8s.io/v1", "EndpointSlice"), selector="kubernetes.io/service-name=orders")
    behind = [each["targetRef"]["name"] for one in slices for each in one["endpoints"] or ()]
    return status["primary"], [each["metadata"]["name"] for each in labelled], behind


async def write(cluster: VirtualCluster, **spec: Any) -> None:
    """Change the Lease, as an instance does."""
    await cluster.client.patch(LEASE, "orders-primary", {"spec": spec}, "default")


async def report(cluster: VirtualCluster, name: str, position: int) -> None:
    """Report the position of a replica, as an instance does."""
    term = (await cluster.client.get(LEASE, "orders-primary", "default"))["spec"]["leaseTransitions"]
    annotations = {POSITION: f"{term} 1 {position}"}
    await cluster.client.patch(POD, name, {"metadata": {"annotations": annotations}}, "default")


@virtual(nodes=3)
async def test_the_primary_service_follows_the_primary(cluster: VirtualCluster) -> None:
    async with cluster.running(postgres_operator(lambda: "x")):
        await create_orders(cluster)
        assert await primary(cluster) == ("orders-0", ["orders-0"], ["orders-0"])
        nodes = {each["spec"]["nodeName"] for each in await cluster.all(POD)}
        assert len(nodes) == 3, "instances are on different nodes"
        await cluster.client.delete(POD, "orders-0", "default")
        await cluster.settle(quiet=10)
        assert await primary(cluster) == ("orders-1", ["orders-1"], ["orders-1"])
        assert is_true(await cluster.client.get(PG, "orders", "default"), "Ready")


@virtual(nodes=1)
async def test_an_expired_lease_gets_another_holder(cluster: VirtualCluster) -> None:
    async with cluster.running(postgres_operator(lambda: "x")):
        await create_orders(cluster)
        for second in range(12):
            await write(cluster, renewTime=f"2026-01-01T01:00:{second:02}.000000Z")
            await cluster.advance("1s")
        # The Lease is given to another one ten seconds after its last renewal, however long ago that was.
        await cluster.advance("8s")
        assert (await primary(cluster))[0] == "orders-0"
        await report(cluster, "orders-1", 7)
        await cluster.advance("8s")
        status = (await cluster.client.get(PG, "orders", "default"))["status"]
        assert status["phase"] == "FailingOver", "it waits for the position of the other one"
        await report(cluster, "orders-2", 8)
        await cluster.advance("2s")
        assert await primary(cluster) == ("orders-2", ["orders-2"], ["orders-2"])
        await write(cluster, renewTime="2026-01-01T02:00:00.000000Z")
        await cluster.advance("6s")
        assert (await cluster.client.get(PG, "orders", "default"))["status"]["phase"] == "Running"


@virtual(nodes=1)
async def test_a_released_lease_gets_another_holder_at_once(cluster: VirtualCluster) -> None:
    async with cluster.running(postgres_operator(lambda: "x")):
        await create_orders(cluster)
        await write(cluster, renewTime="2026-01-01T01:00:00.000000Z", holderIdentity=None)
        for name in ("orders-0", "orders-1", "orders-2"):
            await report(cluster, name, 1 if name == "orders-0" else 2)
        await cluster.advance("2s")
        assert await primary(cluster) == ("orders-1", ["orders-1"], ["orders-1"])
        found = await cluster.client.get(LEASE, "orders-primary", "default")
        assert found["spec"]["leaseTransitions"] == 2


# -- the instance -----------------------------------------------------------------------------------------------------


class RecordedServer:
    """The part of the API and of PostgreSQL that an instance uses, without either; records what is done."""

    def __init__(self, *, has_data: bool, in_recovery: bool) -> None:
        self.name = "db-0"
        self.done: list[str] = []
        self.lease: Obj = {}
        self.running = False
        self.has_data = has_data
        self._in_recovery = in_recovery

    def get_lease(self) -> Obj:
        return self.lease

    def put_lease(self, lease: Obj) -> None:
        self.done.append("renew")

    def annotate_pod(self, uid: str, annotations: Obj) -> None:
        self.done.append(f"annotate {annotations[POSITION]}")

    def initialize(self) -> None:
        self.done.append("initialize")
        self.has_data = True

    def start(self, *, follow: str | None = None) -> None:
        self.done.append("start" if follow is None else f"follow {follow}")
        self.running = True

    def stop(self) -> None:
        self.done.append("stop")
        self.running = False

    def join(self, host: str, timeline: int) -> None:
        self.done.append(f"join {host} at {timeline}")

    def promote(self) -> None:
        self.done.append("promote")

    def in_recovery(self) -> bool:
        return self._in_recovery

    def create_replicator(self) -> None:
        self.done.append("prepare")

    def timeline_of(self, host: str) -> int | None:
        return 2

    def query(self, statement: str, host: str = "") -> list[str]:
        return ["0", "2", "77"]


def actions(found: Obj, *, has_data: bool = True, in_recovery: bool = False) -> list[str]:
    """Return what the instance `db-0_u0` does with a Lease."""
    server = RecordedServer(has_data=has_data, in_recovery=in_recovery)
    server.lease = found
    environment = {"POD_UID": "u0", "CLUSTER": "db"}
    Instance(cast(Api, server), cast(Postgres, server), environment).step()
    return server.done


def test_an_instance_does_what_the_lease_says() -> None:
    assert actions(lease("db-0_u0", renewed=False), has_data=False) == ["initialize", "renew", "start", "prepare"]
    assert actions(lease("db-0_u0"), has_data=False) == [], "data that is lost is not replaced by an empty database"
    assert actions(lease("db-0_u0"), in_recovery=True) == ["renew", "start", "promote"]
    joined = ["stop", "join db-1.db-pods at 2", "follow db-1.db-pods"]
    assert actions(lease("db-1_u1")) == joined
    assert actions(lease("db-1_u1"), has_data=False) == joined
    assert actions(lease()) == ["follow ", "annotate 3 2 77"], "it waits, and reports its position"
    assert actions(lease("db-0_old")) == ["follow "], "the holder is its former Pod"
