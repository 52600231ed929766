"""Delivery of events to subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.store.in_memory_reads import PrefixSubscription, Subscriptions
from setpoint.store.interface import Event, KeyValue


def event(revision: int, key: str) -> Event:
    return Event(revision, key, KeyValue(key, b"", revision, revision), None)


def ignore(events: Sequence[Event], revision: int) -> None: ...


class CountingPrefix(str):
    """A prefix that counts how often a key is compared with it."""

    comparisons = 0

    def __len__(self) -> int:
        CountingPrefix.comparisons += 1
        return super().__len__()


def test_an_event_is_not_compared_with_every_subscription() -> None:
    subscriptions = Subscriptions()
    for number in range(200):
        subscriptions.add(CountingPrefix(f"resource{number}/"), 0, ignore)
    subscriptions.publish([event(1, "resource7/ns/a")], 1)
    assert CountingPrefix.comparisons == 200
    subscriptions.publish([event(revision, f"resource7/ns/{revision}") for revision in range(2, 100)], 99)
    assert CountingPrefix.comparisons == 200


def test_one_call_for_each_subscription_and_batch() -> None:
    calls: list[tuple[list[str], int]] = []
    subscriptions = Subscriptions()
    subscriptions.add("a/", 0, lambda events, revision: calls.append(([each.key for each in events], revision)))
    subscriptions.publish([event(1, "a/1"), event(2, "b/1"), event(3, "a/2")], 3)
    subscriptions.publish([event(4, "b/1")], 4)
    assert calls == [(["a/1", "a/2"], 3)]


def test_a_new_subscription_gets_events_of_cached_folders() -> None:
    subscriptions = Subscriptions()
    received: list[str] = []
    opened: list[PrefixSubscription] = []
    for name in ("first", "second"):

        def record(events: object, revision: object, name: str = name) -> None:
            received.append(name)

        opened.append(subscriptions.add("a/", 0, record))
        subscriptions.publish([event(1, "a/1")], 1)
    opened[0].close()
    subscriptions.publish([event(2, "a/1")], 2)
    assert received == ["first", "first", "second", "second"]
