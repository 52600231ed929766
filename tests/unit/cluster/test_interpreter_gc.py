"""Garbage collection of a server process: in slices, and full only after unexplained growth."""

from __future__ import annotations

import gc
import weakref
from asyncio import get_running_loop
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from setpoint.cluster import interpreter_gc
from setpoint.cluster.interpreter_gc import GarbageCollection
from setpoint.testing import virtual
from setpoint.testing.virtual_time import VirtualClock


class Node:
    """An object in a reference cycle."""

    def __init__(self) -> None:
        self.itself = self


class Memory:
    """The simulated memory use and number of stored objects of the process."""

    blocks = 1_000_000
    objects = 1_000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Memory]]:
    """Restore the state of the garbage collector after a test."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)

    class Said(Memory):
        pass

    monkeypatch.setattr(interpreter_gc, "sys", SimpleNamespace(getallocatedblocks=lambda: Said.blocks))
    yield Said
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.enable()


@virtual()
async def test_a_collection_visits_objects_since_the_last_one(memory: type[Memory], virtual_time: VirtualClock) -> None:
    GarbageCollection(get_running_loop(), lambda: memory.objects).start()
    alive = [[number] for number in range(5_000)]
    gc.collect()
    assert not gc.get_objects(generation=2) or len(gc.get_objects(generation=2)) < len(alive)
    found = weakref.ref(Node())
    gc.collect()
    assert found() is None, "a cycle that is garbage by then is freed"
    assert len(alive) == 5_000


@virtual()
async def test_an_object_is_visited_by_one_collection_only(memory: type[Memory], virtual_time: VirtualClock) -> None:
    GarbageCollection(get_running_loop(), lambda: memory.objects).start()
    left: list[int] = []
    gc.callbacks.append(lambda phase, info: left.append(len(gc.get_objects())) if phase == "stop" else None)
    alive = [[number] for number in range(200_000)]
    assert len(left) >= 20, len(alive)
    assert max(left) < 100, "what a collection has visited is frozen"


@virtual()
async def test_unexplained_growth_causes_a_full_collection(memory: type[Memory], virtual_time: VirtualClock) -> None:
    governed = GarbageCollection(get_running_loop(), lambda: memory.objects)
    governed.start()
    node = Node()
    gc.collect()  # it was frozen while it was alive
    found = weakref.ref(node)
    del node
    await virtual_time.sleep(300)
    gc.collect()
    assert governed.full_collections == 0 and found() is not None
    memory.blocks = 2_500_000
    await virtual_time.sleep(121)
    assert governed.full_collections == 1 and found() is None
    await virtual_time.sleep(600)
    assert governed.full_collections == 1, "what is left after it is what it takes"


@virtual()
async def test_a_large_request_causes_no_full_collection(memory: type[Memory], virtual_time: VirtualClock) -> None:
    governed = GarbageCollection(get_running_loop(), lambda: memory.objects)
    governed.start()
    for _ in range(5):
        memory.blocks = 9_000_000
        await virtual_time.sleep(61)
        memory.blocks = 1_000_000
        await virtual_time.sleep(60)
    assert governed.full_collections == 0


@virtual()
async def test_growth_of_stored_objects_causes_no_full_collection(
    memory: type[Memory], virtual_time: VirtualClock
) -> None:
    governed = GarbageCollection(get_running_loop(), lambda: memory.objects)
    governed.start()
    memory.objects, memory.blocks = 101_000, 13_000_000
    await virtual_time.sleep(600)
    assert governed.full_collections == 0
