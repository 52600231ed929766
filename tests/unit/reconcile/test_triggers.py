"""What triggers a run: the queue keeps it for each key, and merges it without loss."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from stopped_clock import StoppedClock

from setpoint.client.interface import INITIAL_EVENTS_END
from setpoint.client.run import Run
from setpoint.meta.cause import MAX_TRIGGERS, claim_of, run_claim_values
from setpoint.meta.errors import Conflict
from setpoint.meta.objects import Obj
from setpoint.reconcile import Controller, Informer, Result
from setpoint.reconcile.run import RecentRuns, Triggers, because, current_run, triggered
from setpoint.reconcile.workqueue import RateLimitingQueue, WorkQueue
from setpoint.testing.virtual_time import VirtualClock, VirtualLoop

_STEPS = st.lists(
    st.one_of(st.tuples(st.just("add"), st.integers(0, 2)), st.tuples(st.sampled_from(["take", "done"]), st.just(0))),
    max_size=60,
)


def revisions_of(taken: int | Triggers | None) -> tuple[list[int], int]:
    if taken is None:
        return [], 0
    return ([taken], 1) if isinstance(taken, int) else (taken.revisions, taken.count)


@given(_STEPS)
def test_every_added_revision_belongs_to_exactly_one_run(steps: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        added: dict[str, list[int]] = {}
        seen: dict[str, list[int]] = {}
        processing: list[str] = []
        counted = 0

        async def take() -> None:
            nonlocal counted
            key = await queue.get()
            revisions, count = revisions_of(queue.taken)
            assert revisions == sorted(set(revisions)) and 0 < len(revisions) <= MAX_TRIGGERS
            assert revisions[-1] == added[key][-1]
            seen.setdefault(key, []).extend(revisions)
            counted += count
            processing.append(key)

        for number, (step, which) in enumerate([*steps, *[("done", 0), ("take", 0)] * 8], start=1):
            if step == "add":
                with triggered(number):
                    queue.add(str(which))
                added.setdefault(str(which), []).append(number)
            elif step == "take" and len(queue):
                await take()
            elif step == "done" and processing:
                queue.done(processing.pop(0))
        assert counted == sum(map(len, added.values()))
        for key, revisions in added.items():
            assert len(seen[key]) == len(set(seen[key])) and set(seen[key]) <= set(revisions)
            if len(revisions) <= MAX_TRIGGERS:
                assert seen[key] == revisions

    asyncio.run(scenario())


async def test_a_run_has_the_changes_for_which_its_key_is_delayed() -> None:
    """The key is woken before its delay has ended, and the caches show the changes that were to wait."""
    clock = StoppedClock()
    queue = RateLimitingQueue(clock)  # it does not run: no delay ends

    def add(revision: int, seconds: float = 0.0) -> None:
        with triggered(revision):
            queue.add_after("a", seconds)

    async def taken() -> tuple[list[int], int, str]:
        await queue.get()
        queue.done("a")
        besides = queue.taken.besides if isinstance(queue.taken, Triggers) else ""
        return *revisions_of(queue.taken), besides

    add(1, 0.25)
    add(2)
    assert await taken() == ([1, 2], 2, ""), "changes that are coalesced"
    add(3)
    assert await taken() == ([3], 1, ""), "each belongs to one run"

    queue = RateLimitingQueue(clock)
    queue.throttle("a", 0.1)
    add(3)
    await clock.advance(0.1)
    add(4)
    assert await taken() == ([3, 4], 2, ""), "a change while the key was throttled"

    queue = RateLimitingQueue(clock)
    token = current_run.set(Run("test", "0", 1, "a", (5,)))
    queue.add_rate_limited("a")
    current_run.reset(token)
    add(6)
    assert await taken() == ([5, 6], 2, "retry:1"), "those of a run that has failed and is to be retried"

    queue = RateLimitingQueue(clock)
    add(7, 60.0)
    add(8)
    assert await taken() == ([8], 1, ""), "what a timer was set for is not a change that waits"


class Reader:
    """Answers a watch with the given initial events and those that follow."""

    def __init__(self, items: list[Obj], events: list[tuple[str, Obj]]) -> None:
        end = {"metadata": {"resourceVersion": "9", "annotations": {INITIAL_EVENTS_END: "true"}}}
        self.events = [*(("ADDED", item) for item in items), ("BOOKMARK", end), *events]

    def watch(self, *_: object, **__: object) -> Reader:
        return self

    resource_version = "9"

    async def __aenter__(self) -> Reader:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> tuple[str, Obj]:
        if not self.events:
            await asyncio.Event().wait()
        return self.events.pop(0)


def pod(name: str, revision: int) -> Obj:
    return {"metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(revision)}}


def virtual(scenario: object) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario)  # type: ignore[arg-type]
    finally:
        loop.close()


def test_runs_know_what_triggered_them() -> None:
    """First list, changes, a deletion, a retry, timers, a resync, and a key that another reconcile adds."""

    async def scenario() -> None:
        clock = VirtualClock()
        runs: list[Run] = []
        fail = {"default/b": 2}

        async def reconcile(key: str) -> Result | None:
            run = current_run.get()
            assert run is not None
            runs.append(run)
            because(f"run {run.number}")
            if fail.get(key):
                fail[key] -= 1
                raise Conflict("it changed")
            if key == "default/a" and run.number < 8:
                controller.enqueue("other")
                return Result(requeue_after=60)
            return None

        controller = Controller("test", reconcile, clock)
        reader = Reader(
            [pod("a", 3), pod("c", 2)], [("ADDED", pod("b", 10)), ("MODIFIED", pod("b", 11)), ("DELETED", pod("c", 12))]
        )
        informer = Informer[Obj](reader, ("v1", "Pod"), clock)  # type: ignore[arg-type]
        informer.add_handler(lambda old, new: controller.enqueue(f"default/{(new or old or {})['metadata']['name']}"))
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(informer.run()), tasks.create_task(controller.run())]
            await clock.sleep(300)
            informer.resync()
            await clock.sleep(1)
            for task in running:
                task.cancel()
        shown = [(run.key, run.triggers, run.besides) for run in runs]
        assert shown[:3] == [
            ("default/a", (3,), "start"),
            ("default/c", (2, 12), "start"),  # its deletion came before the run
            ("default/b", (10, 11), ""),
        ]
        assert ("default/b", (10, 11), "retry:1") in shown and ("default/b", (10, 11), "retry:2") in shown
        assert ("other", (3,), "start") in shown
        assert ("default/a", (3,), "timer:60") in shown
        assert ("default/a", (), "timer:60") in shown, "a timer does not pass on the triggers of a timer's run"
        assert ("default/a", (), "resync") in shown
        assert controller.failures == {} and controller.recent.last("default/b") is not None
        failed = [run for run in controller.recent if run.error]
        assert [run.error for run in failed] == ["it changed"] * 2 and all(run.ended is not None for run in failed)
        assert len({run.id for run in runs}) == len(runs)

    virtual(scenario())


def test_the_rings_are_bounded() -> None:
    recent = RecentRuns(3)
    for number in range(10):
        recent.add(Run("a", "0", number, str(number % 2)))
    assert [run.number for run in recent] == [7, 8, 9]
    last = recent.last("0")
    assert last is not None and last.number == 8 and recent.last("x") is None


def test_the_claim_is_made_once_for_each_reason() -> None:
    run = Run("a", "0", 1, "k", (5,))
    first = run.claim_write()
    assert run.claim_write() is first
    run.because("two Pods are missing")
    second = run.claim_write()
    assert second != first and run.claim_write() is second and run.writes == 4


def test_a_claim_in_the_process_has_the_reason_at_that_moment() -> None:
    run = Run("a", "0", 1, "k", (5,))
    first = run.claim_write_in_process()
    run.because("two Pods are missing")
    second = run.claim_write_in_process()
    assert [claim_of(run_claim_values(*each)).reason for each in (first, second)] == ["", "two Pods are missing"]
    assert claim_of(run_claim_values(*second)) == run.claim and run.writes == 2
