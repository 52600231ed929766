"""A limit of CPU time lets control loops rest, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from running_loops import RunningLoops
from stopped_clock import StoppedClock, settle

from setpoint.reconcile import Controller
from setpoint.reconcile.controller import Result
from setpoint.reconcile.cpu_limit import CpuLimit
from setpoint.reconcile.gate import Checkpoint, Gates, Mode
from setpoint.scheduler.writes import WriteQueue


class BusyClock(StoppedClock):
    """A clock that reconciles can set forward while they hold the event loop."""

    def work(self, seconds: float) -> None:
        self._elapsed += seconds


def test_the_limit_is_a_token_bucket_with_debts() -> None:
    clock = BusyClock()
    limit = CpuLimit(clock, 0.1, 1.0)
    assert limit.charge(0.9) == 0
    assert not limit.was_exceeded
    assert limit.charge(0.6) == pytest.approx(5 + 1), "half a second of debt, and the shortest rest"
    assert limit.was_exceeded
    clock.work(5)
    assert limit.charge(0.1) == pytest.approx(1 + 1)
    clock.work(1000)
    assert limit.charge(0.9) == 0, "no more than the burst was saved"
    assert not limit.was_exceeded
    assert limit.charge(0.1) == pytest.approx(1)


class Cluster:
    """Loops behind the same gates: one that never ends to have work, and another one."""

    def __init__(self, clock: BusyClock, limit: CpuLimit | None) -> None:
        self.clock = clock
        self.gates = Gates(clock, limit)
        self.fights = True
        self.seen: list[str] = []
        self.busy = 0.0
        """Seconds for which the first loop held the event loop."""
        self.fighter = Controller("replicaset-controller", self._fight, clock, workers=2)
        self.other = Controller("deployment-controller", self._note, clock)
        for each in (self.fighter, self.other):
            each.gates = self.gates

    async def _fight(self, key: str) -> Result | None:
        self.clock.work(0.02)
        self.busy += 0.02
        await asyncio.sleep(0)
        return Result(requeue_after=0.1) if self.fights else None

    async def _note(self, key: str) -> None:
        self.seen.append(key)


@asynccontextmanager
async def running(*clusters: Cluster) -> AsyncIterator[None]:
    background = RunningLoops()
    for each in clusters:
        for loop in (each.fighter.run(), each.other.run(), each.gates.run()):
            background.start(loop)
    await settle()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(background.stop)
        yield


async def test_loops_that_have_used_their_time_rest_and_go_on() -> None:
    clock = BusyClock()
    cluster = Cluster(clock, CpuLimit(clock, 0.1, 1.0))
    async with running(cluster):
        for number in range(10):
            cluster.fighter.enqueue(f"default/rs-{number}")
        began = clock.monotonic()
        await clock.advance(60)
        passed = clock.monotonic() - began
        assert 0.1 * passed < cluster.busy < 1.0 + 0.1 * passed + 0.2

        while cluster.gates.resting_until is None:
            await clock.advance(0.1)
        cluster.other.enqueue("default/web")
        await settle()
        assert cluster.seen == [], "all loops of the cluster rest"
        cluster.fights = False
        await clock.advance(10)
        assert cluster.seen == ["default/web"]
        assert not cluster.fighter.queue.is_busy
        assert cluster.fighter.queue.gate is None


async def test_clusters_share_a_limit_or_have_none() -> None:
    clock = BusyClock()
    shared = CpuLimit(clock, 0.1, 1.0)
    both = [Cluster(clock, shared), Cluster(clock, shared)]
    free = Cluster(clock, None)
    async with running(*both, free):
        free.fights = False
        for each in both:
            each.fighter.enqueue("default/rs")
        begun = clock.monotonic()
        for number in range(600):
            free.fighter.enqueue(f"default/{number}")
            await clock.advance(0.1)
            assert not free.fighter.queue.is_busy, "it is never held back"
            assert free.fighter.queue.gate is None
        passed = clock.monotonic() - begun
        used = [each.busy for each in both]
        assert sum(used) < 1.0 + 0.1 * passed + 0.2
        assert min(used) > 1.0, "neither keeps the other one from working"
        assert free.busy == pytest.approx(600 * 0.02)


async def test_a_rest_and_a_pause_end_on_their_own() -> None:
    clock = BusyClock()
    cluster = Cluster(clock, CpuLimit(clock, 0.1, 1.0))
    async with running(cluster):
        cluster.gates.set_mode(Mode.PAUSED)
        cluster.other.enqueue("a")
        cluster.other.enqueue("b")
        charge = cluster.gates.charge
        assert charge is not None
        charge(1.5)
        cluster.gates.step()
        await settle()
        assert cluster.seen == [], "a single step waits for the end of the rest"
        await clock.advance(7)
        assert cluster.seen == ["a"], "the loops are still paused"
        charge(1.5)
        cluster.gates.set_mode(Mode.RUN)
        await settle()
        assert cluster.seen == ["a"], "they may run, but rest"
        await clock.advance(20)
        assert cluster.seen == ["a", "b"]


async def test_periodic_loops_rest_too() -> None:
    clock = BusyClock()
    gates = Gates(clock, CpuLimit(clock, 0.1, 1.0))
    background = RunningLoops()
    background.start(gates.run())
    checkpoint = Checkpoint(gates, "pod-garbage-collector-controller")
    with checkpoint.guarded():
        assert gates.charge is not None
        gates.charge(1.2)
        waiting = asyncio.get_running_loop().create_task(checkpoint.wait())
        await clock.advance(2.9)
        assert not waiting.done()
        await clock.advance(0.2)
        assert waiting.done()
    await background.stop()


async def test_writes_of_the_scheduler_count() -> None:
    clock, charged = BusyClock(), list[float]()
    queue = WriteQueue(clock, charged.append)
    background = RunningLoops()
    background.start(queue.run())

    async def bind() -> None:
        clock.work(0.01)
        await clock.sleep(5)
        clock.work(0.02)
        raise RuntimeError("no")

    queue.submit("default/web", bind)
    await clock.advance(6)
    assert charged == [pytest.approx(0.03)]
    await background.stop()
