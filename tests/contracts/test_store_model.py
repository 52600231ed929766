"""Any sequence of calls, compared with the simplest thing that could be right: a list of whole states."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from effort import tries
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from setpoint.store.interface import Compacted, CompareFailed, Delete, Event, KeyValue, Op, Put
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore

Result = TypeVar("Result")

KEYS = ["a", "a/1", "a/2", "a/é", "a/\U0001f600", "b/1", "b/1/x"]
PREFIXES = ["", "a", "a/", "b/1", "c"]

ops = st.lists(
    st.tuples(
        st.sampled_from(KEYS),
        st.sampled_from(["put", "stamp", "delete"]),
        st.sampled_from(["whatever", "absent", "current", "stale"]),
        st.binary(max_size=3),
    ),
    max_size=4,
    unique_by=lambda each: each[0],
)


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.states: list[dict[str, KeyValue]] = [{}]  # by revision
        self.events: list[Event] = []
        self.causes: list[tuple[int, bytes]] = []
        self.compacted = 0
        self.received: list[Event] = []
        self.store = self.open()
        self.listen(0)

    def open(self) -> MemoryStore | SqliteStore:
        return MemoryStore()

    def listen(self, after: int) -> None:
        self.listening = self.store.watch("", after, lambda events, revision: self.received.extend(events))

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    def happens(self, changes: list[Op], cause: bytes) -> list[KeyValue | None]:
        """Apply the transaction to the model and return the results."""
        before, now = self.states[-1], dict(self.states[-1])
        revision = self.revision + 1
        for op in changes:
            if isinstance(op, Put):
                value = op.value if op.stamp is None else op.value[: op.stamp] + b"%d" % revision + op.value[op.stamp :]
                created = before[op.key].create_revision if op.key in before else revision
                now[op.key] = KeyValue(op.key, value, created, revision)
            else:
                now.pop(op.key, None)
        if any(isinstance(op, Put) or op.key in before for op in changes):
            self.states.append(now)
            if cause:
                self.causes.append((revision, cause))
            self.events += [
                Event(revision, op.key, now.get(op.key), before.get(op.key))
                for op in changes
                if isinstance(op, Put) or op.key in before
            ]
        return [now.get(op.key) for op in changes]

    @rule(described=ops, cause=st.binary(max_size=2))
    def transaction(self, described: list[tuple[str, str, str, bytes]], cause: bytes) -> None:
        state = self.states[-1]
        changes: list[Op] = []
        holds = True
        for key, what, expectation, value in described:
            current = state[key].mod_revision if key in state else 0
            expect = {"whatever": None, "absent": 0, "current": current, "stale": self.revision + 5}[expectation]
            holds = holds and expect in (None, current)
            if what == "delete":
                changes.append(Delete(key, expect))
            else:
                changes.append(Put(key, value, expect, len(value) // 2 if what == "stamp" else None))
        if holds:
            revision, answers = self.run(self.store.txn(changes, cause))
            assert answers == self.happens(changes, cause)
            assert revision == self.revision
        else:
            with pytest.raises(CompareFailed) as failed:
                self.run(self.store.txn(changes, cause))
            assert failed.value.current == state.get(failed.value.key)

    @rule(names=st.lists(st.sampled_from(KEYS), min_size=2, max_size=12), delete=st.sets(st.integers(0, 11)))
    def at_once(self, names: list[str], delete: set[int]) -> None:
        changes: list[list[Op]] = [
            [Delete(name) if number in delete else Put(name, b"%d" % number)] for number, name in enumerate(names)
        ]

        async def together() -> list[Any]:
            return await asyncio.gather(*(self.store.txn(each) for each in changes))

        # Started in this order, and nothing is expected of any state: so they happen in this order.
        for change, (revision, answers) in zip(changes, self.run(together()), strict=True):
            before = self.revision
            assert answers == self.happens(change, b"")
            if self.revision > before:
                assert revision == self.revision

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES), start=st.sampled_from(["", *KEYS]), limit=st.integers(0, 4))
    def read(self, data: st.DataObject, prefix: str, start: str, limit: int) -> None:
        revision = data.draw(st.integers(0, self.revision))
        if 0 < revision <= self.compacted and revision != self.revision:
            with pytest.raises(Compacted):
                self.run(self.store.list(prefix, revision=revision))
            with pytest.raises(Compacted):
                self.run(self.store.get("a", revision))
            return
        state = self.states[revision or -1]
        expected = [state[key] for key in sorted(state) if key.startswith(prefix) and key >= start]
        page = self.run(self.store.list(prefix, start=start, limit=limit, revision=revision))
        assert page.items == (expected[:limit] if limit else expected)
        assert page.total == len(expected)
        assert page.more == (len(page.items) < len(expected))
        assert page.revision == (revision or self.revision)
        for key in KEYS:
            assert self.run(self.store.get(key, revision)) == state.get(key)

    @rule(data=st.data(), prefix=st.sampled_from(PREFIXES))
    def resume(self, data: st.DataObject, prefix: str) -> None:
        after = data.draw(st.integers(0, self.revision))
        received: list[Event] = []
        if after < self.compacted:
            with pytest.raises(Compacted):
                self.store.watch(prefix, after, lambda events, revision: received.extend(events))
            return
        self.store.watch(prefix, after, lambda events, revision: received.extend(events)).close()
        assert received == [event for event in self.events if event.revision > after and event.key.startswith(prefix)]
        causes = self.run(self.store.causes(after))
        assert [(each.revision, each.cause) for each in causes] == [each for each in self.causes if each[0] > after]

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        revision = data.draw(st.integers(0, self.revision))
        self.run(self.store.compact(revision))
        self.compacted = max(self.compacted, revision)

    @invariant()
    def agrees(self) -> None:
        assert self.store.revision == self.revision
        assert self.store.compacted == self.compacted
        assert self.received == self.events


class ForkedModel(Model):
    """Every now and then it goes on with a fork, or with what it was forked from; the other one goes its own way."""

    @rule(stay=st.booleans(), key=st.sampled_from(KEYS))
    def fork(self, stay: bool, key: str) -> None:
        assert isinstance(self.store, MemoryStore)
        other = self.store.fork()
        if not stay:
            self.listening.close()
            self.store, other = other, self.store
            self.listen(self.revision)
        self.run(other.txn([Put(key, b"elsewhere")], b"no concern of the model"))
        self.run(other.compact(other.revision))
        if not stay:
            self.run(other.close())


class DurableModel(Model):
    def open(self) -> SqliteStore:
        if not hasattr(self, "folder"):
            self.folder = tempfile.TemporaryDirectory()
        return SqliteStore.open(Path(self.folder.name) / "store.db")

    @precondition(lambda self: self.revision > 0)
    @rule()
    def restart(self) -> None:
        self.run(self.store.close())
        self.store = self.open()
        self.listen(self.revision)

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


TestMemory = ForkedModel.TestCase
TestMemory.settings = settings(max_examples=tries(25, 60), stateful_step_count=40, deadline=None)
TestSqlite = DurableModel.TestCase
TestSqlite.settings = settings(
    max_examples=tries(12, 40), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
