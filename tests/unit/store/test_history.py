"""The index of history: how many events a read of the past scans, and that its result equals that of the whole log."""

from __future__ import annotations

import random

import pytest

from setpoint.store.history import History
from setpoint.store.interface import Compacted, Event, KeyValue

PREFIXES = ["", "a", "a/", "a/p", "a/pods/", "a/pods/x/", "a/pods/x/1", "b/", "b/nodes/", "c", "none/", "none/x/"]
KEYS = ["c", "a/1", "a/2", "a/pods/x/1", "a/pods/x/2", "a/pods/y/1", "a/podsets/x/1", "b/nodes/1", "b/nodes/2"]


class CountingKey(str):
    """A key that counts comparisons with it."""

    looks = 0

    def __eq__(self, other: object) -> bool:
        CountingKey.looks += 1
        return str.__eq__(self, other)

    def __ge__(self, other: str) -> bool:
        CountingKey.looks += 1
        return str.__ge__(self, other)

    def startswith(self, *args: object) -> bool:
        CountingKey.looks += 1
        return str.startswith(self, *args)  # type: ignore[arg-type]

    __hash__ = str.__hash__


class LoggedHistory:
    """A history, and all of its events as a plain list."""

    def __init__(self) -> None:
        self.history = History()
        self.log: list[Event] = []

    def write(self, *keys: str, delete: bool = False) -> None:
        revision = self.history.revision + 1
        events = []
        for key in keys:
            before = self.history.state.get(key)
            now = (
                None
                if delete
                else KeyValue(key, b"%d" % revision, before.create_revision if before else revision, revision)
            )
            if now is not None or before is not None:
                events.append(Event(revision, key, now, before))
        if events:
            self.history.apply(events, b"")
            self.log += events

    def replayed(self, prefix: str, after: int, limit: int) -> list[Event]:
        found: list[Event] = []
        while after < self.history.revision:
            events, reached = self.history.replay(prefix, after, limit)
            assert reached > after
            assert all(after < event.revision <= reached for event in events)
            found += events
            after = reached
        return found


def random_history(seed: int, length: int = 120) -> LoggedHistory:
    rng, past = random.Random(seed), LoggedHistory()
    for _ in range(length):
        past.write(*rng.sample(KEYS, rng.choice([1, 1, 1, 2, 5])), delete=rng.random() < 0.3)
    return past


@pytest.mark.parametrize("seed", range(5))
def test_every_read_equals_a_scan_of_the_whole_log(seed: int) -> None:
    past = random_history(seed)
    compacted = 0
    forked = past.history.fork()
    for compacted in (0, 7, 60):
        past.history.compacted = compacted
        while events := past.history.compacted_events(5):
            past.history.drop(len(events))
        for prefix in PREFIXES:
            for after in range(compacted, past.history.revision + 1, 9):
                expected = [e for e in past.log if e.revision > after and e.key.startswith(prefix)]
                assert past.history.events(prefix, after) == expected
                assert past.replayed(prefix, after, 3) == expected
                if after > compacted:
                    page = past.history.page(prefix, "", 0, after)
                    was = {e.key: e.now for e in past.log if e.revision <= after}
                    present = [kv for key in sorted(was) if key.startswith(prefix) and (kv := was[key]) is not None]
                    assert (list(page.items), page.total) == (present, len(present))
                    for key in KEYS:
                        assert past.history.get(key, after) == was.get(key)
    assert forked.events("", 0) == past.log, "a copy keeps its own index"
    with pytest.raises(Compacted):
        past.history.replay("a/", 59, 10)


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_pages_of_the_past_do_not_change_with_later_writes(limit: int) -> None:
    rng, past = random.Random(limit), random_history(limit, 40)
    for _ in range(20):
        begin, present = past.history.revision, sorted(past.history.state.values(), key=lambda each: each.key)
        found: list[KeyValue] = []
        while True:
            for _ in range(rng.randrange(4)):
                past.write(*rng.sample(KEYS, rng.choice([1, 2, 5])), delete=rng.random() < 0.5)
            page = past.history.page("", found[-1].key + "\0" if found else "", limit, begin)
            assert page.total == len(present) - len(found)
            found += page.items
            if not page.more:
                break
        assert found == present


def test_events_of_other_resources_are_not_scanned() -> None:
    past = LoggedHistory()
    past.write("a/pods/x/1")
    others = [CountingKey(f"a/leases/x/{number}") for number in range(50)]
    for _ in range(20):
        for key in others:
            past.write(key)
    past.write("a/pods/x/1")
    history = past.history
    CountingKey.looks = 0
    assert len(history.events("a/pods/", 1)) == 1
    assert len(history.replay("a/pods/", 1, 100).events) == 1
    assert history.replay("a/pods/x/", 1, 100).revision == history.revision
    assert history.get("a/pods/x/1", 2) == KeyValue("a/pods/x/1", b"1", 1, 1)
    assert CountingKey.looks == 0
    history.page("a/pods/", "", 0, 2)
    assert CountingKey.looks < 50, "a few comparisons find the place in the order of keys"


def test_paging_scans_each_change_once() -> None:
    past = LoggedHistory()
    for number in range(100):
        past.write(f"a/pods/x/{number:02}")
    begin = past.history.revision
    changed = [CountingKey(f"a/pods/x/{number:02}") for number in range(100)]
    found: list[KeyValue] = []
    for page in range(10):
        for key in changed:
            past.write(key, delete=page == 5)
        CountingKey.looks = 0
        start = found[-1].key + "\0" if found else ""
        found += past.history.page("a/pods/", start, 10, begin).items
        assert CountingKey.looks <= 300, "as many as have changed since the page before, and their places"
    assert [(each.key, each.mod_revision) for each in found] == [(f"a/pods/x/{n:02}", n + 1) for n in range(100)]
    for revision in range(begin, begin + 50):
        past.history.page("a/pods/", "", 10, revision)
    assert len(past.history._changes_since) <= 8
    past.history.compacted = past.history.revision
    while events := past.history.compacted_events(100):
        past.history.drop(len(events))
    assert past.history._changes_since == {}, "dropped values are not retained"


def test_a_replay_step_scans_a_bounded_number_of_events() -> None:
    past = LoggedHistory()
    for number in range(1_000):
        past.write(CountingKey(f"a/pods/{'x' if number % 100 else 'y'}/{number}"))
    CountingKey.looks = 0
    events, reached = past.history.replay("a/pods/y/", 0, 50)
    assert (len(events), reached, CountingKey.looks) == (1, 50, 50)


def test_compaction_removes_empty_indexes() -> None:
    past = random_history(1)
    past.history.compacted = past.history.revision
    while events := past.history.compacted_events(7):
        past.history.drop(len(events))
    assert past.history._index == {}
