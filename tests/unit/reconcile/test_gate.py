"""Gates hold back reconciles, let single ones pass, and open again by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from running_loops import RunningLoops
from stopped_clock import StoppedClock, settle

from setpoint.reconcile import Controller
from setpoint.reconcile.gate import HOLD_SECONDS, MAX_BREAKPOINTS, Checkpoint, Gates, Mode
from setpoint.reconcile.run import triggered


class Loops:
    """Two controllers behind the same gates, and what they have reconciled."""

    def __init__(self, workers: int = 1) -> None:
        self.clock = StoppedClock()
        self.gates = Gates(self.clock)
        self.seen: list[str] = []
        self.first = self._controller("replicaset-controller", workers)
        self.second = self._controller("deployment-controller", workers)

    def _controller(self, name: str, workers: int) -> Controller:
        async def reconcile(key: str) -> None:
            self.seen.append(key)
            if key.startswith("bad"):
                raise RuntimeError("no")

        controller = Controller(name, reconcile, self.clock, workers=workers)
        controller.gates = self.gates
        return controller


@asynccontextmanager
async def running(loops: Loops) -> AsyncIterator[Loops]:
    background = RunningLoops()
    for loop in (loops.first.run(), loops.second.run(), loops.gates.run()):
        background.start(loop)
    await settle()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(background.stop)
        yield loops


async def test_an_open_gate_leaves_no_trace_at_the_queue() -> None:
    async with running(Loops()) as loops:
        assert loops.first.queue.gate is None
        loops.first.enqueue("a")
        await settle()
        assert loops.seen == ["a"]


async def test_a_paused_loop_queues_and_deduplicates_and_continues() -> None:
    async with running(Loops(workers=3)) as loops:
        loops.gates.set_mode(Mode.PAUSED, "replicaset-controller")
        for revision in (11, 12, 13):
            with triggered(revision):
                loops.first.enqueue("a")
        loops.first.enqueue("b")
        loops.second.enqueue("other")
        await settle()
        assert loops.seen == ["other"]
        assert [(key, count) for key, count, _ in loops.first.queue.queued(10)] == [("a", 3), ("b", 1)]
        loops.gates.set_mode(Mode.RUN, "replicaset-controller")
        await settle()
        assert loops.seen == ["other", "a", "b"]
        assert loops.first.queue.gate is None


async def test_keys_that_wait_in_all_workers_are_held_too() -> None:
    async with running(Loops(workers=2)) as loops:
        # The workers wait inside of the queue when the gate closes.
        loops.gates.set_mode(Mode.PAUSED)
        loops.first.enqueue("a")
        loops.second.enqueue("b")
        await settle()
        assert loops.seen == []
        loops.gates.set_mode(Mode.RUN)
        await settle()
        assert sorted(loops.seen) == ["a", "b"]


async def test_a_step_lets_one_key_pass() -> None:
    async with running(Loops(workers=3)) as loops:
        loops.gates.set_mode(Mode.PAUSED)
        for key in ("a", "b", "c"):
            loops.first.enqueue(key)
        assert loops.gates.step("replicaset-controller") == ("replicaset-controller", "a")
        await settle()
        assert loops.seen == ["a"]
        assert loops.gates.step("replicaset-controller", "c") == ("replicaset-controller", "c")
        await settle()
        assert loops.seen == ["a", "c"]
        assert loops.gates.step("replicaset-controller", "unknown") is None
        assert loops.gates.step("deployment-controller") is None
        await settle()
        assert loops.seen == ["a", "c"]


async def test_a_step_of_no_loop_takes_the_key_that_waits_longest() -> None:
    async with running(Loops()) as loops:
        loops.gates.set_mode(Mode.PAUSED)
        loops.second.enqueue("old")
        await loops.clock.advance(1)
        loops.first.enqueue("new")
        assert loops.gates.step() == ("deployment-controller", "old")
        await settle()
        assert loops.seen == ["old"]


async def test_a_step_of_a_running_loop_pauses_it() -> None:
    async with running(Loops()) as loops:
        assert loops.gates.step("replicaset-controller") is None
        loops.first.enqueue("a")
        await settle()
        assert loops.seen == []
        assert loops.gates.gate("replicaset-controller").mode is Mode.PAUSED
        assert loops.gates.gate("deployment-controller").mode is Mode.RUN


async def test_a_step_ends_the_back_off_of_a_key() -> None:
    async with running(Loops()) as loops:
        loops.first.enqueue("bad")
        for _ in range(8):
            await loops.clock.advance(0.7)
        count = len(loops.seen)
        assert loops.first.queue.due_in("bad")
        assert loops.gates.step("replicaset-controller", "bad") == ("replicaset-controller", "bad")
        await settle()
        assert len(loops.seen) == count + 1


async def test_slow_lets_one_key_pass_each_period() -> None:
    async with running(Loops(workers=2)) as loops:
        loops.gates.set_mode(Mode.SLOW, "replicaset-controller", every=5)
        for key in ("a", "b", "c"):
            loops.first.enqueue(key)
            loops.second.enqueue(key.upper())
        await settle()
        assert sorted(loops.seen) == ["A", "B", "C", "a"]
        await loops.clock.advance(4.9)
        assert len(loops.seen) == 4
        await loops.clock.advance(0.2)
        assert loops.seen[4:] == ["b"]
        await loops.clock.advance(5)
        assert loops.seen[4:] == ["b", "c"]
        await loops.clock.advance(20)
        loops.first.enqueue("d")
        await settle()
        assert loops.seen[-1] == "d"  # it has waited long enough before it came


async def test_slow_for_all_shares_the_period_and_gives_each_loop_its_share() -> None:
    async with running(Loops()) as loops:
        loops.gates.set_mode(Mode.SLOW, every=2)
        for key in ("a", "b", "c"):
            loops.first.enqueue(key)
            loops.second.enqueue(key.upper())
        for count in range(1, 7):
            await settle()
            assert len(loops.seen) == count
            await loops.clock.advance(2)
        assert [key.isupper() for key in loops.seen] in ([True, False] * 3, [False, True] * 3)


async def test_a_breakpoint_pauses_all_loops_before_the_reconcile() -> None:
    async with running(Loops()) as loops:
        found = loops.gates.add_breakpoint(kind="ReplicaSet", key="default/web")
        loops.first.enqueue("default/other")
        loops.second.enqueue("default/web")  # the same name, of a Deployment
        await settle()
        assert sorted(loops.seen) == ["default/other", "default/web"]
        loops.first.enqueue("default/web")
        await settle()
        stopped = loops.gates.stopped
        assert stopped is not None
        assert stopped[:3] == ("replicaset-controller", "default/web", found)
        loops.second.enqueue("x")
        await settle()
        assert len(loops.seen) == 2
        # Going on passes this reconcile, and stops before the next.
        loops.gates.set_mode(Mode.RUN)
        await settle()
        assert sorted(loops.seen[2:]) == ["default/web", "x"]
        assert loops.gates.stopped is None
        loops.first.enqueue("default/web")
        await settle()
        assert loops.gates.stopped is not None
        assert len(loops.seen) == 4
        assert loops.gates.remove_breakpoint(found.number)
        assert not loops.gates.remove_breakpoint(found.number)
        loops.gates.set_mode(Mode.RUN)
        await settle()
        assert len(loops.seen) == 5
        assert loops.first.queue.gate is None


async def test_breakpoints_are_bounded() -> None:
    gates = Gates(StoppedClock())
    for number in range(MAX_BREAKPOINTS):
        gates.add_breakpoint(key=f"default/{number}")
    with pytest.raises(ValueError, match="breakpoints already"):
        gates.add_breakpoint(key="default/more")
    assert gates.remove_breakpoint(0)
    assert gates.is_open


async def test_gates_open_when_nobody_renews_the_hold() -> None:
    async with running(Loops()) as loops:
        loops.gates.set_mode(Mode.PAUSED)
        loops.gates.add_breakpoint(kind="ReplicaSet")
        loops.first.enqueue("a")
        await loops.clock.advance(HOLD_SECONDS - 1)
        loops.gates.renew()
        await loops.clock.advance(HOLD_SECONDS - 1)
        assert loops.seen == []
        await loops.clock.advance(2)
        assert loops.seen == ["a"]
        assert loops.gates.is_open
        assert loops.gates.held_until is None
        assert not loops.gates.breakpoints
        assert loops.clock.sleeping == 0


async def test_a_loop_that_starts_while_all_are_paused_is_paused() -> None:
    loops = Loops()
    loops.gates.set_mode(Mode.PAUSED)
    loops.first.enqueue("a")
    async with running(loops):
        await settle()
        assert loops.seen == []


async def test_a_checkpoint_holds_back_periodic_runs() -> None:
    clock = StoppedClock()
    gates, runs = Gates(clock), 0
    checkpoint = Checkpoint(gates, "node-lifecycle-controller")

    async def periodic() -> None:
        nonlocal runs
        with checkpoint.guarded():
            while True:
                await checkpoint.wait()
                runs += 1
                await clock.sleep(5)

    background = RunningLoops()
    background.start(periodic())
    await settle()
    assert runs == 1
    gates.set_mode(Mode.PAUSED)
    await clock.advance(20)
    assert runs == 1
    assert gates.step("node-lifecycle-controller") == ("node-lifecycle-controller", "")
    await clock.advance(20)
    assert runs == 2
    gates.set_mode(Mode.RUN)
    await clock.advance(10)
    assert runs == 5
    await background.stop()


async def test_a_worker_that_is_cancelled_while_it_is_held_takes_nothing_along() -> None:
    loops = Loops()
    loops.gates.set_mode(Mode.PAUSED)
    worker = asyncio.ensure_future(loops.first.run())
    await settle()
    loops.first.enqueue("a")
    await settle()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert len(loops.first.queue) == 1
    assert loops.gates.gate("replicaset-controller").queues == []
    assert loops.first.queue.gate is None
