"""Streams with the same selection and form share one watch of the cache, and clients cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from server_harness import ServerHarness, Watcher, settle

from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.wire.loop_slices import LoopSlicer

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PROTOBUF = "application/vnd.kubernetes.protobuf;stream=watch"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def cache_of(harness: ServerHarness, group: str = "", plural: str = "configmaps") -> ResourceCache:
    return harness.api.resources.registry(group, plural).cache


def watches(harness: ServerHarness) -> int:
    """The number of watches of the cache."""
    return sum(map(len, cache_of(harness)._watches.values()))


async def make(harness: ServerHarness, name: str, **labels: str) -> None:
    await harness.make(CONFIGMAPS, {"metadata": {"name": name, "labels": labels}})


async def change(harness: ServerHarness, name: str, value: str) -> None:
    assert (await harness.patch(f"{CONFIGMAPS}/{name}", {"data": {"v": value}})).status == 200


def values(watcher: Watcher) -> list[str]:
    return [event["object"].get("data", {}).get("v", "") for event in watcher.events if event["type"] != "BOOKMARK"]


class Busy:
    """Lets the event loop have no time, until `work`."""

    def __init__(self, slicer: LoopSlicer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deferred: list[Callable[[], None]] = []
        monkeypatch.setattr(type(slicer), "has_time", lambda _: False)
        monkeypatch.setattr(type(slicer), "defer", self._defer)

    def _defer(self, work: Callable[[], None], cost: float = 0.0, **_: Any) -> None:
        self.deferred.append(work)

    def work(self) -> None:
        while self.deferred:
            self.deferred.pop(0)()


@pytest.fixture
def busy(harness: ServerHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Busy]:
    return lambda: Busy(harness.api.resources.env.slicer, monkeypatch)


async def test_the_same_selection_and_form_share_a_watch(harness: ServerHarness) -> None:
    paths = [CONFIGMAPS, CONFIGMAPS, f"{CONFIGMAPS}?resourceVersion=0", f"{CONFIGMAPS}?allowWatchBookmarks=true"]
    same = [await harness.watch(path) for path in paths]
    assert watches(harness) == 1 and cache_of(harness).watch_count == 4
    others = [
        await harness.watch("/api/v1/configmaps"),
        await harness.watch(f"{CONFIGMAPS}?labelSelector=a%3Db"),
        await harness.watch(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Da"),
        await harness.watch(CONFIGMAPS, headers={"accept": METADATA}),
        await harness.watch(CONFIGMAPS, headers={"accept": PROTOBUF}),
        await harness.watch(CONFIGMAPS, headers={"accept": TABLE}),
        await harness.watch(CONFIGMAPS, headers={"accept": TABLE}),  # rows have ages, and are not shared
    ]
    assert watches(harness) == 1 + len(others) and cache_of(harness).watch_count == 4 + len(others)
    await make(harness, "a", a="b")
    assert all(watcher.summary == [("ADDED", "a")] for watcher in [*same, *others[:3]])
    assert len({id(watcher.pieces[-1]) for watcher in same}) == 1, "they share the bytes"
    assert "data" not in others[3].events[0]["object"]
    assert all(len(watcher.events) == 1 and "rows" in watcher.events[0]["object"] for watcher in others[5:])
    for watcher in (*same, *others):
        await watcher.close()
    assert watches(harness) == 0 and cache_of(harness).watch_count == 0


async def test_streams_come_and_go_while_events_are_pending(harness: ServerHarness, busy: Callable[[], Busy]) -> None:
    await make(harness, "a")
    now = harness.store.revision
    first = await harness.watch(f"{CONFIGMAPS}?resourceVersion={now}")
    leaving = await harness.watch(f"{CONFIGMAPS}?resourceVersion={now}")
    loop = busy()
    await change(harness, "a", "1")
    await change(harness, "a", "2")
    assert values(first) == [] and len(loop.deferred) == 1
    joining = await harness.watch(f"{CONFIGMAPS}?resourceVersion={harness.store.revision - 1}")
    assert values(joining) == ["2"], "it has what is pending for the others"
    await change(harness, "a", "3")
    await leaving.close()
    assert values(leaving) == ["1", "2", "3"], "a stream gets what happened before its end"
    await change(harness, "a", "4")
    loop.work()
    assert values(first) == ["1", "2", "3", "4"]
    assert values(joining) == ["2", "3", "4"]
    assert values(leaving) == ["1", "2", "3"]


async def test_bookmarks_follow_all_changes_before_them(harness: ServerHarness, busy: Callable[[], Busy]) -> None:
    watchers = [await harness.watch(f"{CONFIGMAPS}?allowWatchBookmarks=true") for _ in range(20)]
    await make(harness, "a")
    loop = busy()
    await change(harness, "a", "1")
    await change(harness, "a", "2")
    await harness.clock.advance(61)
    for watcher in watchers:
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watcher.events]
        assert revisions == sorted(revisions)
        assert [event["type"] for event in watcher.events] == ["ADDED", "MODIFIED", "MODIFIED", "BOOKMARK"]
    await change(harness, "a", "3")
    loop.work()
    assert all(values(watcher) == ["", "1", "2", "3"] for watcher in watchers), "nothing is sent twice"


async def test_a_stream_that_missed_changes_gets_no_bookmark(harness: ServerHarness, busy: Callable[[], Busy]) -> None:
    watchers = [await harness.watch(f"{CONFIGMAPS}?allowWatchBookmarks=true") for _ in range(3)]
    await make(harness, "a")
    busy()
    for number in range(40):  # more than the maximum is pending
        await change(harness, "a", str(number) + "x" * 500_000)
        if watchers[0].ended:
            break
    await harness.clock.advance(61)
    assert all(watcher.ended for watcher in watchers)
    assert [event["type"] for event in watchers[0].events] == ["ADDED"]
    assert watches(harness) == 0
    resumed = await harness.watch(f"{CONFIGMAPS}?resourceVersion={harness.store.revision}")
    assert not resumed.ended


async def test_a_client_that_does_not_read_ends_alone(harness: ServerHarness) -> None:
    stuck = [await harness.watch(CONFIGMAPS, stuck=True) for _ in range(2)]
    reading = await harness.watch(CONFIGMAPS)
    await make(harness, "a")
    for number in range(40):
        await change(harness, "a", f"{number}" + "x" * 500_000)
        await settle()
    assert all(watcher.ended for watcher in stuck) and not reading.ended
    assert len(values(reading)) == 41
    assert all(16 * 2**20 < watcher.held < 18 * 2**20 for watcher in stuck)
    assert watches(harness) == 1 and cache_of(harness).watch_count == 1


async def test_the_end_of_a_resource_sends_pending_events_first(
    harness: ServerHarness, busy: Callable[[], Busy]
) -> None:
    watchers = [await harness.watch(CONFIGMAPS) for _ in range(20)]
    busy()
    await make(harness, "a")
    assert not watchers[0].events
    cache_of(harness).stop()
    await settle()
    assert all(watcher.ended and watcher.summary == [("ADDED", "a")] for watcher in watchers)
    assert watches(harness) == 0
