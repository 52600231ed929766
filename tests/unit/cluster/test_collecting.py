"""How a server process collects garbage: in slices, and in full only when it has grown without reason."""

from __future__ import annotations

import gc
import weakref
from asyncio import get_running_loop
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from setpoint.cluster import collecting
from setpoint.cluster.collecting import Collecting
from setpoint.testing import virtual
from setpoint.testing.virtual_time import VirtualClock


class Node:
    """One that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


class Memory:
    """What the process is said to take, and to store."""

    blocks = 1_000_000
    objects = 1_000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Memory]]:
    """A collector that was governed by a test is as it was before."""
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)

    class Said(Memory):
        pass

    monkeypatch.setattr(collecting, "sys", SimpleNamespace(getallocatedblocks=lambda: Said.blocks))
    yield Said
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.enable()


@virtual()
async def test_a_slice_is_what_was_made_since_the_last_one(memory: type[Memory], virtual_time: VirtualClock) -> None:
    Collecting(get_running_loop(), lambda: memory.objects).start()
    kept = [[number] for number in range(5_000)]
    gc.collect()
    assert not gc.get_objects(generation=2) or len(gc.get_objects(generation=2)) < len(kept)
    found = weakref.ref(Node())
    gc.collect()
    assert found() is None, "a cycle that is garbage by then is freed"
    assert len(kept) == 5_000


@virtual()
async def test_the_oldest_generation_is_collected_as_it_grows(memory: type[Memory], virtual_time: VirtualClock) -> None:
    Collecting(get_running_loop(), lambda: memory.objects).start()
    before = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(200_000)]
    assert gc.get_stats()[2]["collections"] - before >= 4
    assert len(gc.get_objects(generation=2)) < 50_000, len(kept)


@virtual()
async def test_growth_without_reason_ends_in_a_full_collection(
    memory: type[Memory], virtual_time: VirtualClock
) -> None:
    governed = Collecting(get_running_loop(), lambda: memory.objects)
    governed.start()
    node = Node()
    gc.collect()  # frozen while it was alive
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
async def test_a_large_request_is_no_reason_for_a_full_collection(
    memory: type[Memory], virtual_time: VirtualClock
) -> None:
    governed = Collecting(get_running_loop(), lambda: memory.objects)
    governed.start()
    for _ in range(5):
        memory.blocks = 9_000_000
        await virtual_time.sleep(61)
        memory.blocks = 1_000_000
        await virtual_time.sleep(60)
    assert governed.full_collections == 0


@virtual()
async def test_growth_with_what_is_stored_is_none_without_reason(
    memory: type[Memory], virtual_time: VirtualClock
) -> None:
    governed = Collecting(get_running_loop(), lambda: memory.objects)
    governed.start()
    memory.objects, memory.blocks = 101_000, 13_000_000
    await virtual_time.sleep(600)
    assert governed.full_collections == 0
