"""The CPU time of each seat is limited: control loops that never end to have work rest, and other seats do not notice."""

from __future__ import annotations

from typing import Any

from class_seats import ANN, BOB, FORKS, PODS, ask, seats_for

from setpoint.cluster.classroom.seats import Seats
from setpoint.cluster.embedded import EmbeddedCluster, embedded_cluster
from setpoint.cluster.virtual.time import VirtualClock
from setpoint.reconcile.cpu_limit import CpuLimit
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster, virtual
from setpoint.view.loops import gate_sentence

LESSON = "/forks/lesson-loop"
DATABASES = "/apis/database.example.com/v1alpha1/namespaces/default/postgresclusters"
SETS = "/apis/apps/v1/namespaces/default/statefulsets"
REPLICA_SETS = "/apis/apps/v1/namespaces/default/replicasets"
_STEP = 0.002
"""Seconds that pass between two looks at the clock."""


class BusyClock(VirtualClock):
    """A clock of a machine on which work takes time: some passes with each look at the clock."""

    def monotonic(self) -> float:
        self.freeze(_STEP)
        return super().monotonic()


def replica_set(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


async def ready(seats: Seats, seat: str, name: str, cluster: str = "") -> int:
    _, found = await ask(seats, seat, "GET", f"{cluster}{REPLICA_SETS}/{name}")
    return int(found.get("status", {}).get("readyReplicas", 0))


def running(seats: Seats, fork: str) -> EmbeddedCluster:
    found = seats.forks.find(fork).cluster
    assert found is not None
    return found


class Charges:
    """The CPU time that was charged to each limit."""

    def __init__(self) -> None:
        self.seconds: dict[CpuLimit, float] = {}

    def count(self, limit: CpuLimit) -> None:
        charge = limit.charge

        def counted(seconds: float) -> float:
            self.seconds[limit] = self.seconds.get(limit, 0.0) + seconds
            return charge(seconds)

        limit.charge = counted  # type: ignore[method-assign]


@virtual(nodes=0)
async def test_loops_that_fight_rest_and_other_seats_do_not_notice(cluster: VirtualCluster) -> None:
    cluster.clock = BusyClock()
    async with seats_for(cluster, ANN, BOB) as seats:
        for seat in (ANN, BOB):
            await ask(seats, seat, "GET", PODS)
        made = {"name": "lesson-loop", "empty": True, "nodes": 1}
        assert (await ask(seats, ANN, "POST", FORKS, made))[0] == 201
        assert (await ask(seats, ANN, "POST", f"{LESSON}{REPLICA_SETS}", replica_set("web", 20)))[0] == 201
        while await ready(seats, ANN, "web", LESSON) < 20:
            await cluster.sleep(1)
        await cluster.sleep(60)
        gates = {name: running(seats, name).components.gates for name in (ANN, BOB, f"{ANN}-lesson-loop")}
        limit, others = gates[ANN].cpu_limit, gates[BOB].cpu_limit
        assert limit is not None and others is not None and limit is not others
        assert gates[f"{ANN}-lesson-loop"].cpu_limit is limit, "the clusters of a seat share its limit"
        charges = Charges()
        charges.count(limit)

        # The ReplicaSet creates Pods, and somebody deletes them all, again and again.
        began, rested, taken = cluster.clock.monotonic(), 0, list[float]()
        for number in range(60):
            await ask(seats, ANN, "DELETE", f"{LESSON}{PODS}?gracePeriodSeconds=0")
            await cluster.sleep(1)
            rested += gates[f"{ANN}-lesson-loop"].resting_until is not None
            assert gates[BOB].resting_until is None
            if number % 20 == 10:
                asked = cluster.clock.monotonic()
                await ask(seats, BOB, "POST", REPLICA_SETS, replica_set(f"web-{number}", 2))
                while await ready(seats, BOB, f"web-{number}") < 2:
                    await cluster.sleep(0.5)
                taken.append(cluster.clock.monotonic() - asked)
        passed = cluster.clock.monotonic() - began
        assert charges.seconds[limit] < 1.0 + 0.1 * passed + 0.5
        assert rested > 30
        assert max(taken) < 10, taken

        told = (await ask(seats, ANN, "GET", f"{LESSON}/setpoint/v1/loops"))[1]
        assert "used all their CPU time, which is 10 % of one core" in gate_sentence(told["gate"], told["now"])
        assert (await ask(seats, BOB, "GET", "/setpoint/v1/loops"))[1]["gate"]["note"] == ""

        await cluster.sleep(120)
        assert await ready(seats, ANN, "web", LESSON) == 20, "nothing was lost"
        assert gates[f"{ANN}-lesson-loop"].resting_until is None
        assert (await ask(seats, ANN, "GET", f"{LESSON}/setpoint/v1/loops"))[1]["gate"]["note"] == ""


@virtual(nodes=0)
async def test_operators_of_lessons_share_the_limit(cluster: VirtualCluster) -> None:
    cluster.clock = BusyClock()
    async with seats_for(cluster, ANN) as seats:
        made = {"name": "lesson-loop", "empty": True, "nodes": 1}
        assert (await ask(seats, ANN, "POST", FORKS, made))[0] == 201
        body = {"operator": "postgres", "running": True}
        assert (await ask(seats, ANN, "POST", f"{FORKS}/lesson-loop", body))[0] == 200
        await cluster.sleep(60)
        limit = running(seats, f"{ANN}-lesson-loop").components.gates.cpu_limit
        assert limit is not None

        async def create(name: str) -> None:
            resource = {"apiVersion": "database.example.com/v1alpha1", "kind": "PostgresCluster"}
            body = {**resource, "metadata": {"name": name}, "spec": {"engineVersion": "16"}}
            assert (await ask(seats, ANN, "POST", f"{LESSON}{DATABASES}", body))[0] == 201

        async def has_set(name: str) -> bool:
            _, listed = await ask(seats, ANN, "GET", f"{LESSON}{SETS}")
            return name in [each["metadata"]["name"] for each in listed["items"]]

        limit.charge(2.0)
        await create("first")
        await cluster.sleep(1)
        assert await has_set("first"), "its loop learns with its next reconcile that all time is used"
        await create("second")
        await cluster.sleep(5)
        assert not await has_set("second")
        await cluster.sleep(15)
        assert await has_set("second")


@virtual(nodes=0)
async def test_the_scheduler_rests_too(cluster: VirtualCluster) -> None:
    cluster.clock = BusyClock()
    async with seats_for(cluster, ANN) as seats:
        await ask(seats, ANN, "GET", PODS)
        await cluster.sleep(60)
        components = running(seats, ANN).components
        await components.controllers.stop()
        await components.fleet.stop()
        limit = components.gates.cpu_limit
        assert limit is not None

        async def create(name: str) -> None:
            pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "a", "image": "nginx"}]}}
            assert (await ask(seats, ANN, "POST", PODS, pod))[0] == 201

        async def is_scheduled(name: str) -> bool:
            return "nodeName" in (await ask(seats, ANN, "GET", f"{PODS}/{name}"))[1]["spec"]

        limit.charge(2.0)
        await create("first")
        await cluster.sleep(1)
        assert await is_scheduled("first")
        await create("second")
        await cluster.sleep(5)
        assert not await is_scheduled("second")
        await cluster.sleep(15)
        assert await is_scheduled("second")


@virtual(nodes=0)
async def test_other_clusters_have_no_limit(cluster: VirtualCluster) -> None:
    async with embedded_cluster(cluster.clock, RandomIds(1)) as other:
        gates = other.components.gates
        assert (gates.cpu_limit, gates.charge) == (None, None)
        told = await other.client.sender.json("GET", "/setpoint/v1/loops")
        assert told["gate"]["note"] == ""
