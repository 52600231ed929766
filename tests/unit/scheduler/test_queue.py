"""The order, backoff and wake-ups of the scheduling queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from scheduler_objects import a_node, a_pod

from setpoint.scheduler.cluster_events import ASSIGNED_POD, NODE, TARGET_POD, Action, ClusterEvent, QueueingHints
from setpoint.scheduler.queue import QueueEntry, SchedulingQueue
from setpoint.testing import VirtualClock, run_virtual

PROFILE = "default-scheduler"


def waiting(name: str, priority: int = 0, **spec: Any) -> Any:
    pod = a_pod(name, priority=priority, schedulerName=PROFILE, **spec)
    pod["metadata"]["uid"] = name
    return pod


def _is_right(pod: Any, old: Any, new: Any) -> bool:
    return bool(new == "right")


class QueueFixture:
    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.held: set[str] = set()
        self.queueing_hints = QueueingHints()
        self.queueing_hints.register(PROFILE, "Nodes", [(ClusterEvent(NODE, Action.ADD), None)])
        self.queueing_hints.register(PROFILE, "Labels", [(ClusterEvent(NODE, Action.NODE_LABEL), _is_right)])
        self.queueing_hints.register(PROFILE, "Tolerations", [(ClusterEvent(TARGET_POD, Action.POD_TOLERATION), None)])
        self.queue = SchedulingQueue(
            self.clock, self.queueing_hints, is_held=lambda pod: pod["metadata"]["uid"] in self.held
        )

    async def next(self) -> QueueEntry | None:
        """Return the next entry, or None if no Pod is ready at this moment."""
        try:
            async with asyncio.timeout(1e-6):
                return await self.queue.pop()
        except TimeoutError:
            return None

    async def name(self) -> str | None:
        entry = await self.next()
        return None if entry is None else str(entry.pod["metadata"]["name"])


@asynccontextmanager
async def queue_fixture() -> AsyncIterator[QueueFixture]:
    bench = QueueFixture()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(bench.queue.run())
        yield bench
        running.cancel()


def in_virtual_time(test: Callable[[QueueFixture], Awaitable[None]]) -> Callable[[], None]:
    async def main() -> None:
        async with queue_fixture() as bench:
            await test(bench)

    def runs() -> None:
        run_virtual(main)

    runs.__name__ = test.__name__
    return runs


@in_virtual_time
async def test_priority_then_time(bench: QueueFixture) -> None:
    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5), ("e", -3)):
        bench.queue.add(waiting(name, priority))
        await bench.clock.sleep(0.1)
    assert [await bench.name() for _ in range(6)] == ["b", "d", "a", "c", "e", None]


@in_virtual_time
async def test_a_rejected_pod_waits_for_an_event_that_could_help(bench: QueueFixture) -> None:
    bench.queue.add(waiting("p"))
    entry = await bench.next()
    assert entry is not None
    bench.queue.add_unschedulable(entry, entry.pod, ["Labels"])
    assert await bench.name() is None
    bench.queue.move_on_event(ClusterEvent(NODE, Action.ADD), None, a_node("n"))  # an event without interest
    bench.queue.move_on_event(ClusterEvent(NODE, Action.NODE_LABEL), None, "wrong")  # type: ignore[arg-type]
    assert await bench.name() is None
    bench.queue.move_on_event(ClusterEvent(NODE, Action.NODE_LABEL), None, "right")  # type: ignore[arg-type]
    # No other Pod is ready, so its backoff ends early.
    assert await bench.name() == "p"


@in_virtual_time
async def test_pods_in_backoff_come_after_ready_ones(bench: QueueFixture) -> None:
    bench.queue.add(waiting("important", 100))
    entry = await bench.next()
    assert entry is not None
    bench.queue.add_unschedulable(entry, entry.pod, ["Nodes"])
    bench.queue.move_on_event(ClusterEvent(NODE, Action.ADD), None, a_node("n"))
    assert bench.queue.sizes()["backoff"] == 1
    bench.queue.add(waiting("ready"))
    assert [await bench.name(), await bench.name()] == ["ready", "important"]


@in_virtual_time
async def test_backoff_after_errors_grows_from_one_to_ten_seconds(bench: QueueFixture) -> None:
    bench.queue.add(waiting("p"))
    entry = await bench.queue.pop()
    pauses = []
    for _ in range(6):
        began = bench.clock.monotonic()
        bench.queue.add_unschedulable(entry, entry.pod, None)
        entry = await bench.queue.pop()
        pauses.append(bench.clock.monotonic() - began)
    # Backoffs end at whole seconds.
    wanted = (1, 2, 4, 8, 10, 10)
    assert all(least < pause <= least + 1 for pause, least in zip(pauses, wanted)), pauses


@in_virtual_time
async def test_the_pool_is_flushed_after_five_minutes(bench: QueueFixture) -> None:
    bench.queue.add(waiting("p"))
    entry = await bench.next()
    assert entry is not None
    bench.queue.add_unschedulable(entry, entry.pod, ["Nodes"])
    await bench.clock.sleep(299)
    assert await bench.name() is None
    await bench.clock.sleep(1.1)
    assert await bench.name() == "p"


@in_virtual_time
async def test_scheduling_gates(bench: QueueFixture) -> None:
    gated = waiting("p", schedulingGates=[{"name": "g"}])
    bench.queue.add(gated)
    bench.queue.move_on_event(ClusterEvent(NODE, Action.ADD), None, a_node("n"))
    await bench.clock.sleep(1000)
    assert await bench.name() is None
    assert bench.queue.sizes() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    labelled: Any = {**gated, "metadata": {**gated["metadata"], "labels": {"a": "b"}}}
    bench.queue.update(gated, labelled)
    assert await bench.name() is None
    bench.queue.update(labelled, waiting("p"))
    assert await bench.name() == "p"


@in_virtual_time
async def test_a_change_of_the_pod_can_requeue_it(bench: QueueFixture) -> None:
    bench.queue.add(waiting("p"))
    entry = await bench.next()
    assert entry is not None
    bench.queue.add_unschedulable(entry, entry.pod, ["Tolerations"])
    labelled = waiting("p")
    labelled["metadata"]["labels"] = {"a": "b"}
    bench.queue.update(entry.pod, labelled)
    assert await bench.name() is None
    bench.queue.update(labelled, waiting("p", tolerations=[{"operator": "Exists"}]))
    assert await bench.name() == "p"


@in_virtual_time
async def test_a_preempting_pod_is_held_during_evictions(bench: QueueFixture) -> None:
    bench.queue.add(waiting("p"))
    entry = await bench.next()
    assert entry is not None
    bench.held.add("p")
    bench.queue.add_unschedulable(entry, entry.pod, ["Nodes"])
    bench.queue.move_on_event(ClusterEvent(NODE, Action.ADD), None, a_node("n"))
    assert await bench.name() is None
    bench.held.clear()
    bench.queue.released("default/p")  # the event during the hold is not lost
    assert await bench.name() == "p"


@in_virtual_time
async def test_removed_pods_are_not_requeued(bench: QueueFixture) -> None:
    for name in "abc":
        bench.queue.add(waiting(name))
    entry = await bench.next()
    assert entry is not None and entry.key == "default/a"
    bench.queue.remove("default/a")
    bench.queue.remove("default/b")
    bench.queue.add_unschedulable(entry, entry.pod, ["Nodes"])
    bench.queue.move_on_event(ClusterEvent(NODE, Action.ADD), None, a_node("n"))
    assert [await bench.name(), await bench.name()] == ["c", None]


@in_virtual_time
async def test_an_event_requeues_only_selected_pods(bench: QueueFixture) -> None:
    bench.queueing_hints.register(PROFILE, "Room", [(ClusterEvent(ASSIGNED_POD, Action.DELETE), None)])
    for name, priority in (("low", 1), ("high", 9)):
        bench.queue.add(waiting(name, priority))
        entry = await bench.next()
        assert entry is not None
        bench.queue.add_unschedulable(entry, entry.pod, ["Room"])
    gone = ClusterEvent(ASSIGNED_POD, Action.DELETE)
    bench.queue.move_on_event(gone, waiting("x"), None, lambda pod: pod["spec"]["priority"] <= 5)
    assert [await bench.name(), await bench.name()] == ["low", None]


@in_virtual_time
async def test_a_changed_priority_changes_the_order(bench: QueueFixture) -> None:
    bench.queue.add(waiting("a", 1))
    bench.queue.add(waiting("b", 2))
    bench.queue.update(waiting("a", 1), waiting("a", 3))
    assert [await bench.name(), await bench.name(), await bench.name()] == ["a", "b", None]
