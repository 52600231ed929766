"""The workqueue against a model: it is fair, stingy and exclusive, and loses nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from setpoint.reconcile.workqueue import ShutDown, WorkQueue

KEYS = st.sampled_from("abcde")


def get_nowait(queue: WorkQueue) -> str:
    """Return what `get` returns without waiting."""
    step = queue.get()
    try:
        step.send(None)
    except StopIteration as end:
        return str(end.value)
    step.close()
    raise AssertionError("the queue had nothing to give")


class QueueModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue()
        self.waiting: OrderedDict[str, None] = OrderedDict()
        self.working: set[str] = set()
        self.again: set[str] = set()

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key)
        if key in self.working:
            self.again.add(key)
        else:
            self.waiting.setdefault(key)

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        key = get_nowait(self.queue)
        expected, _ = self.waiting.popitem(last=False)
        assert key == expected
        assert key not in self.working
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key)
        self.working.discard(key)
        if key in self.again:
            self.again.discard(key)
            self.waiting[key] = None

    @invariant()
    def same_length(self) -> None:
        assert len(self.queue) == len(self.waiting)


TestQueueModel = QueueModel.TestCase


async def test_waiting_workers_get_keys_in_order() -> None:
    queue = WorkQueue()
    first, second = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    queue.add("b")
    assert (await first, await second) == ("a", "b")


async def test_a_cancelled_worker_passes_its_key_on() -> None:
    queue = WorkQueue()
    leaving, staying = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    leaving.cancel()
    assert await staying == "a"


async def test_a_queue_that_is_shut_down_drains_and_then_ends() -> None:
    queue = WorkQueue()
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    assert await queue.get() == "a"
    with pytest.raises(ShutDown):
        await queue.get()


async def test_waiting_workers_end_at_shutdown() -> None:
    queue = WorkQueue()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.shut_down()
    with pytest.raises(ShutDown):
        await waiting
