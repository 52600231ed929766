"""Leader election never has two leaders, and none for no longer than the duration of a Lease."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from effort import tries

from setpoint.client import Unreachable
from setpoint.meta.errors import Conflict
from setpoint.meta.lease_term import Term
from setpoint.reconcile.leader_election import LEASES, LeaderElection, LeadershipLost
from setpoint.testing import VirtualCluster, virtual, virtual_cluster
from setpoint.testing.virtual_time import run_virtual


class Link:
    """A client whose requests can be made to fail or hang."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self.cut = False
        self.hangs = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._cluster.client, name)

        async def call(*args: Any, **named: Any) -> Any:
            if self.hangs:
                await self._cluster.clock.sleep(3600)
            if self.cut:
                raise Unreachable("cut off")
            return await real(*args, **named)

        return call


class Ids:
    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)


class Candidate:
    def __init__(self, cluster: VirtualCluster, identity: str, at_work: dict[str, bool], seed: int = 1) -> None:
        self.link = Link(cluster)
        self.at_work = at_work
        self.identity = identity
        self.losses = 0
        self.terms: list[float] = []
        self.clock = cluster.clock
        self.election = LeaderElection(
            self.link,  # type: ignore[arg-type]
            cluster.clock,
            Ids(seed),  # type: ignore[arg-type]
            name="test",
            identity=identity,
        )

    async def work(self) -> None:
        assert not any(self.at_work.values()), f"{self.identity} begins while another works: {self.at_work}"
        self.terms.append(self.clock.monotonic())
        self.at_work[self.identity] = True
        try:
            await asyncio.Event().wait()
        finally:
            self.at_work[self.identity] = False

    async def run(self) -> None:
        while True:
            try:
                await self.election.lead(self.work)
            except LeadershipLost:
                self.losses += 1


async def lease(cluster: VirtualCluster) -> dict[str, Any]:
    found = await cluster.client.get(LEASES, "test", "kube-system")
    spec: dict[str, Any] = found["spec"]
    return spec


@virtual(nodes=0, scheduler=False, controllers=())
async def test_the_first_candidate_leads_and_holds_the_lease(cluster: VirtualCluster) -> None:
    first = Candidate(cluster, "a", {})
    task = asyncio.ensure_future(first.run())
    await cluster.sleep(1)
    assert first.election.leading.is_set()
    before = await lease(cluster)
    assert before["holderIdentity"] == "a"
    assert before["leaseDurationSeconds"] == 15
    assert before["leaseTransitions"] == 0
    await cluster.sleep(60)
    after = await lease(cluster)
    assert after["renewTime"] > before["renewTime"]
    assert after["acquireTime"] == before["acquireTime"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    released = await lease(cluster)
    assert released["holderIdentity"] == ""
    assert released["leaseDurationSeconds"] == 1


@virtual(nodes=0, scheduler=False, controllers=())
async def test_a_server_that_does_not_answer_delays_the_end_for_seconds_only(cluster: VirtualCluster) -> None:
    first = Candidate(cluster, "a", {})
    task = asyncio.ensure_future(first.run())
    await cluster.sleep(1)
    first.link.hangs = True
    stopped_at = cluster.clock.monotonic()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert cluster.clock.monotonic() - stopped_at <= 5


@pytest.mark.parametrize("fault", ["cut", "hangs"])
@virtual(nodes=0, scheduler=False, controllers=())
async def test_another_candidate_takes_over_when_the_lease_expires(cluster: VirtualCluster, fault: str) -> None:
    at_work: dict[str, bool] = {}
    first, second = Candidate(cluster, "a", at_work), Candidate(cluster, "b", at_work, seed=2)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(first.run())]
        await cluster.sleep(1)
        running.append(tasks.create_task(second.run()))
        await cluster.sleep(30)
        assert at_work == {"a": True}
        setattr(first.link, fault, True)
        since = cluster.clock.monotonic()
        await cluster.until(lambda: at_work.get("b"), within=30)
        assert first.losses == 1
        assert 10 <= cluster.clock.monotonic() - since <= 15 + 2
        assert (await lease(cluster))["leaseTransitions"] == 1
        setattr(first.link, fault, False)
        await cluster.sleep(60)
        assert at_work == {"a": False, "b": True}
        for task in running:
            task.cancel()


@virtual(nodes=0, scheduler=False, controllers=())
async def test_the_fence_allows_writes_of_the_leader_until_its_deadline(cluster: VirtualCluster) -> None:
    candidate = Candidate(cluster, "a", {})
    with pytest.raises(Conflict, match="not sent: a has not renewed the lease kube-system/test in time"):
        candidate.election.term()
    task = asyncio.ensure_future(candidate.run())
    await cluster.sleep(31)
    assert candidate.election.term() == Term("kube-system", "test", "a", 0)
    fenced = cluster.client.fenced(candidate.election)
    made = await fenced.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}})
    last = cluster.clock.monotonic()
    asyncio.get_running_loop().pass_time(12)  # type: ignore[attr-defined]  # no task ran meanwhile
    with pytest.raises(Conflict, match="not sent"):
        await fenced.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two"}})
    assert (await fenced.get(("v1", "Namespace"), "one"))["metadata"]["uid"] == made["metadata"]["uid"]
    assert cluster.clock.monotonic() == last + 12
    # No other candidate acquired the Lease: it is renewed, and the term continues.
    await cluster.sleep(10)
    await fenced.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two"}})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(Conflict, match="not sent"):
        candidate.election.term()


@virtual(nodes=0, scheduler=False, controllers=())
async def test_a_failure_to_acquire_the_lease_is_logged(
    cluster: VirtualCluster, caplog: pytest.LogCaptureFixture
) -> None:
    candidate = Candidate(cluster, "a", {})
    candidate.link.cut = True
    running = asyncio.ensure_future(candidate.run())
    await cluster.sleep(3)
    assert (candidate.election.holder, candidate.terms) == ("", [])
    warnings = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert warnings == {"cannot acquire or renew the lease test: cut off"}
    caplog.clear()
    candidate.link.hangs = True
    await cluster.sleep(60)
    warnings = {record.getMessage() for record in caplog.records if record.levelname == "WARNING"}
    assert warnings == {"cannot acquire or renew the lease test: timed out"}
    running.cancel()
    await asyncio.wait([running])


@virtual(nodes=0, scheduler=False, controllers=())
async def test_a_released_lease_is_acquired_at_once(cluster: VirtualCluster) -> None:
    at_work: dict[str, bool] = {}
    first, second = Candidate(cluster, "a", at_work), Candidate(cluster, "b", at_work, seed=2)
    one = asyncio.ensure_future(first.run())
    await cluster.sleep(1)
    two = asyncio.ensure_future(second.run())
    await cluster.sleep(30)
    one.cancel()
    await cluster.until(lambda: at_work.get("b"), within=2.1)
    two.cancel()
    await asyncio.gather(one, two, return_exceptions=True)


@virtual(nodes=0, scheduler=False, controllers=())
async def test_the_same_identity_reacquires_its_lease_at_once(cluster: VirtualCluster) -> None:
    """A killed process that restarts with its identity need not wait until its Lease expires."""
    first = Candidate(cluster, "a", {})
    first.link.hangs = False
    task = asyncio.ensure_future(first.run())
    await cluster.sleep(1)
    first.link.cut = True  # so that the Lease is not released
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await lease(cluster))["holderIdentity"] == "a"
    again = Candidate(cluster, "a", {})
    task = asyncio.ensure_future(again.run())
    await cluster.sleep(0.1)
    assert again.election.leading.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("seed", range(tries(4, 16)))
def test_there_are_never_two_leaders(seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        async with virtual_cluster(nodes=0, scheduler=False, controllers=(), seed=seed) as cluster:
            at_work: dict[str, bool] = {}
            candidates = [Candidate(cluster, name, at_work, seed=number) for number, name in enumerate("abc")]
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each.run()) for each in candidates]
                for _ in range(40):
                    candidate = chance.choice(candidates)
                    fault = chance.choice(["cut", "hangs"])
                    setattr(candidate.link, fault, True)
                    await cluster.sleep(chance.uniform(0, 40))
                    setattr(candidate.link, fault, False)
                    await cluster.sleep(chance.choice([0.0, 1.0, 30.0]))
                    assert sum(at_work.values()) <= 1
                await cluster.sleep(60)
                assert sum(at_work.values()) == 1
                for task in running:
                    task.cancel()
            assert sum(each.losses for each in candidates) > 3

    run_virtual(main)
