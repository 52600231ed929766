"""Kill a writing process repeatedly and check that every acknowledged write survives."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from effort import tries

from setpoint.store.interface import Event
from setpoint.store.sqlite import SqliteStore

ROUNDS = tries(8, 24)
WRITERS = 64
_AVERAGE = 300
"""The average number of acknowledgements before the writers are killed. A third of them are of deletions."""
_MAX_SECONDS = 60.0

# Each writer owns a pair of keys, always written together, and some keys of its own, created and deleted. What is
# acknowledged goes to the pipe in one write: a line is there wholly or not at all.
WRITER = """
import asyncio, os, sys
from setpoint.store.interface import Delete, Put
from setpoint.store.sqlite import SqliteStore

path, round, writers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

async def write(store, name):
    number = 0
    while True:
        number += 1
        text = b"%d.%d" % (round, number)
        extra = f"own/{name}/{round}.{number}"
        pair = [Put(f"left/{name}", text + bytes(number * 37 % 9000)), Put(f"right/{name}", text)]
        revision, _ = await store.txn([*pair, Put(extra, b"", 0, 0)], b"round %d" % round)
        os.write(1, b"%d %d %d %d\\n" % (revision, name, round, number))
        if number % 2:
            revision, _ = await store.txn([Delete(extra, revision)])
            os.write(1, b"%d %d %d -%d\\n" % (revision, name, round, number))

async def compact(store):
    while True:
        await asyncio.sleep(0.02)
        await store.compact(max(0, store.revision - 2000))
        await store.check()

async def main():
    store = SqliteStore.open(path)
    os.write(1, b"open\\n")
    await asyncio.gather(compact(store), *(write(store, name) for name in range(writers)))

asyncio.run(main())
"""


class Acknowledged:
    """The writes that were acknowledged to the writers, over all rounds."""

    def __init__(self) -> None:
        self.revision = 0
        self.newest: dict[int, tuple[int, int]] = {}  # writer -> (round, number) of its pair
        # (writer, round) -> number of its last creation: only of these is it open whether the deletion happened.
        self.last_values: dict[tuple[int, int], int] = {}
        self.created: set[str] = set()
        self.deleted: set[str] = set()

    def add(self, line: bytes) -> None:
        revision, name, turn, number = map(int, line.split())
        self.revision = max(self.revision, revision)
        own = f"own/{name}/{turn}.{abs(number)}"
        if number < 0:
            self.deleted.add(own)
        else:
            self.created.add(own)
            self.newest[name] = (turn, number)
            self.last_values[name, turn] = number


def write_until_killed(path: Path, turn: int, least: int) -> list[bytes]:
    """Kill the writers while they write, after this many acknowledgements or a few more, and return these."""
    command = [sys.executable, "-c", WRITER, str(path), str(turn), str(WRITERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        output = child.stdout.readline()
        assert output == b"open\n"
        os.set_blocking(child.stdout.fileno(), False)
        end = time.monotonic() + _MAX_SECONDS
        output = b""
        while output.count(b"\n") < least:
            assert time.monotonic() < end, "the writers do not write"
            output += child.stdout.read() or b""
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.wait()
        os.set_blocking(child.stdout.fileno(), True)
        output += child.stdout.read()
    return output.splitlines()


def check(store: SqliteStore, acknowledged: Acknowledged) -> None:
    assert store.revision >= acknowledged.revision
    items = {item.key: item for item in store.peek_list("").items}
    for name, newest in acknowledged.newest.items():
        left, right = items[f"left/{name}"], items[f"right/{name}"]
        assert left.mod_revision == right.mod_revision
        assert left.value.rstrip(b"\0") == right.value
        turn, number = map(int, right.value.split(b"."))
        assert (turn, number) >= newest
    for own in acknowledged.created - acknowledged.deleted:
        if own not in items:
            # A deletion may be durable without having been acknowledged; the creation must not be lost.
            _, owner, at = own.split("/")
            turn, number = map(int, at.split("."))
            assert number % 2
            assert number == acknowledged.last_values[int(owner), turn]
        else:
            assert items[own].value == b"%d" % items[own].mod_revision
    assert not acknowledged.deleted & items.keys()


def check_history(store: SqliteStore) -> None:
    """Check that no revision after the compacted one is missing, and that each event continues from the previous
    one."""
    events: list[Event] = []
    store.watch("", store.compacted, lambda more, revision: events.extend(more)).close()
    assert sorted({event.revision for event in events}) == [*range(store.compacted + 1, store.revision + 1)]
    state = {item.key: item for item in store.peek_list("").items}
    for event in reversed(events):
        assert state.pop(event.key, None) == event.now
        if event.before is not None:
            state[event.key] = event.before
    if store.compacted + 1 < store.revision:
        oldest = {item.key: item for item in store.peek_list("", revision=store.compacted + 1).items}
        for event in events:
            if event.revision == store.compacted + 1:
                if event.now is None:
                    state.pop(event.key)
                else:
                    state[event.key] = event.now
        assert state == oldest


@pytest.mark.slow
async def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(1037)
    path = tmp_path / "store.db"
    acknowledged = Acknowledged()
    reached = 0
    for turn in range(1, ROUNDS + 1):
        for line in write_until_killed(path, turn, chance.randrange(2 * _AVERAGE)):
            acknowledged.add(line)
        store = SqliteStore.open(path)
        assert store.revision >= reached
        reached = store.revision
        check(store, acknowledged)
        check_history(store)
        await store.close()
    assert len(acknowledged.created) > ROUNDS * _AVERAGE // 4
