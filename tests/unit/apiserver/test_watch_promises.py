"""Guarantees of watches: ordered, complete, resumable, the same bytes for all."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_harness import ServerHarness, Watcher, settle

from setpoint.apiserver.encoding import stamp_offset
from setpoint.store.interface import Put, Replay

STORES = ("memory", "lagging")

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def make(harness: ServerHarness, name: str, **labels: str) -> dict[str, Any]:
    return await harness.make(CONFIGMAPS, {"metadata": {"name": name, "labels": labels}})


async def change(harness: ServerHarness, name: str, value: str) -> dict[str, Any]:
    reply = await harness.patch(f"{CONFIGMAPS}/{name}", {"data": {"v": value}})
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_events_of_the_life_of_an_object(harness: ServerHarness) -> None:
    watcher = await harness.watch(CONFIGMAPS)
    made = await make(harness, "a")
    changed = await change(harness, "a", "1")
    await harness.delete(f"{CONFIGMAPS}/a")
    assert [event["type"] for event in watcher.events] == ["ADDED", "MODIFIED", "DELETED"]
    assert watcher.events[0]["object"] == made
    assert watcher.events[1]["object"] == changed
    gone = watcher.events[2]["object"]
    assert gone["data"] == {"v": "1"}
    assert int(gone["metadata"]["resourceVersion"]) == harness.store.revision


async def test_a_watch_can_resume_from_every_revision(harness: ServerHarness) -> None:
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={harness.store.revision}")
    rng = random.Random(3)
    alive: set[str] = set()
    for step in range(60):
        name = f"o{rng.randrange(6)}"
        if name not in alive:
            await make(harness, name)
            alive.add(name)
        elif rng.random() < 0.3:
            await harness.delete(f"{CONFIGMAPS}/{name}")
            alive.discard(name)
        else:
            await change(harness, name, str(step))
    everything = watcher.events
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in everything]
    assert revisions == sorted(set(revisions)) and len(revisions) == 60
    for place, revision in enumerate(revisions):
        again = await harness.watch(f"{CONFIGMAPS}?resourceVersion={revision}")
        assert again.events == everything[place + 1 :]
        await again.close()


async def test_a_compacted_revision_is_expired_in_the_stream(harness: ServerHarness) -> None:
    made = await make(harness, "a")
    for value in range(5):
        await change(harness, "a", str(value))
    await harness.store.compact(harness.store.revision)
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={made['metadata']['resourceVersion']}")
    (event,) = watcher.events
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    await settle()
    assert watcher.ended
    resumed = await harness.watch(f"{CONFIGMAPS}?resourceVersion={harness.store.revision}")
    await change(harness, "a", "z")
    assert [event["type"] for event in resumed.events] == ["MODIFIED"]


async def test_entering_and_leaving_a_selection(harness: ServerHarness) -> None:
    watcher = await harness.watch(f"{CONFIGMAPS}?labelSelector=app%3Dx")
    await make(harness, "a", app="y")
    assert watcher.events == []
    await harness.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"app": "x"}}})
    await change(harness, "a", "1")
    left = (await harness.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"app": "y"}}})).json
    await change(harness, "a", "2")
    await harness.delete(f"{CONFIGMAPS}/a")
    assert [event["type"] for event in watcher.events] == ["ADDED", "MODIFIED", "DELETED"]
    last = watcher.events[2]["object"]
    assert last["metadata"]["labels"] == {"app": "x"}
    assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    resumed = await harness.watch(f"{CONFIGMAPS}?labelSelector=app%3Dx&resourceVersion=1")
    assert [event["type"] for event in resumed.events] == ["ADDED", "MODIFIED", "DELETED"]


async def test_watches_of_one_name_and_of_one_namespace(harness: ServerHarness) -> None:
    by_name = await harness.watch(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Da")
    by_path = await harness.watch("/api/v1/watch/namespaces/default/configmaps/a")
    elsewhere = await harness.watch("/api/v1/namespaces/other/configmaps")
    everywhere = await harness.watch("/api/v1/configmaps")
    await make(harness, "a")
    await make(harness, "aa")
    await harness.make("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "a"}})
    assert by_name.summary == by_path.summary == [("ADDED", "a")]
    assert elsewhere.summary == [("ADDED", "a")]
    assert everywhere.summary == [("ADDED", "a"), ("ADDED", "aa"), ("ADDED", "a")]


async def test_initial_events_and_their_end(harness: ServerHarness) -> None:
    for name in ("a", "b"):
        await make(harness, name)
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watcher = await harness.watch(f"{CONFIGMAPS}?{query}")
    assert [event["type"] for event in watcher.events] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = watcher.events[2]["object"]
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["metadata"]["resourceVersion"]) == harness.store.revision
    assert mark["kind"] == "ConfigMap"
    await make(harness, "c")
    assert watcher.summary[-1] == ("ADDED", "c")


async def test_bookmarks_and_the_end_in_virtual_time(harness: ServerHarness) -> None:
    watcher = await harness.watch(f"{CONFIGMAPS}?allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=1")
    await harness.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    await harness.clock.advance(61)
    marks = [event for event in watcher.events if event["type"] == "BOOKMARK"]
    assert [int(mark["object"]["metadata"]["resourceVersion"]) for mark in marks] == [harness.store.revision]
    assert not watcher.ended
    await harness.clock.advance(88)
    assert not watcher.ended
    await harness.clock.advance(2)
    assert watcher.ended
    silent = await harness.watch(f"{CONFIGMAPS}?timeoutSeconds=10&resourceVersion=1")
    await harness.clock.advance(9)
    assert not silent.ended
    await harness.clock.advance(2)
    assert silent.ended and silent.events == []


async def test_the_last_event_of_a_watch_that_the_server_ends_is_a_bookmark(harness: ServerHarness) -> None:
    watcher = await harness.watch(f"{CONFIGMAPS}?allowWatchBookmarks=true&resourceVersion=1")
    silent = await harness.watch(f"{CONFIGMAPS}?resourceVersion=1")
    await make(harness, "a")
    await harness.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    for each in (watcher, silent):
        await each.close()
    assert [event["type"] for event in watcher.events] == ["ADDED", "BOOKMARK"]
    assert int(watcher.events[-1]["object"]["metadata"]["resourceVersion"]) == harness.store.revision
    assert [event["type"] for event in silent.events] == ["ADDED"]


async def test_no_bookmark_ends_a_watch_that_has_not_caught_up(harness: ServerHarness) -> None:
    for number in range(150):
        await make(harness, f"o{number:03}")
    watcher = await harness.watch(f"{CONFIGMAPS}?allowWatchBookmarks=true&resourceVersion=0", slow=asyncio.Event())
    await watcher.close()
    assert 0 < len(watcher.events) < 150
    assert {event["type"] for event in watcher.events} == {"ADDED"}


async def test_a_watch_lasts_half_an_hour_at_least(harness: ServerHarness) -> None:
    watcher = await harness.watch(CONFIGMAPS)
    await harness.clock.advance(1799)
    assert not watcher.ended
    await harness.clock.advance(1802)
    assert watcher.ended


async def test_all_watchers_get_the_same_bytes(harness: ServerHarness) -> None:
    watchers = [await harness.watch(CONFIGMAPS) for _ in range(50)]
    await make(harness, "a")
    await settle()  # else what follows may be in the same piece
    await change(harness, "a", "1")
    await settle()
    await harness.delete(f"{CONFIGMAPS}/a")
    await settle()
    first = watchers[0].pieces
    assert len(first) == 3
    assert all(one is other for watcher in watchers for one, other in zip(watcher.pieces, first, strict=True))


async def test_a_watcher_that_does_not_read_is_disconnected(harness: ServerHarness) -> None:
    stuck = await harness.watch(CONFIGMAPS, stuck=True)
    reader = await harness.watch(CONFIGMAPS)
    await make(harness, "a")
    for number in range(60):
        await change(harness, "a", str(number) + "x" * 500_000)
        await settle()
        if stuck.ended:
            break
    assert stuck.ended and not reader.ended
    assert stuck.held < 20 * 2**20
    assert harness.api.resources.registry("", "configmaps").cache.watch_count == 1


async def test_every_watch_ends_with_the_server_and_with_its_client(harness: ServerHarness) -> None:
    cache = harness.api.resources.registry("", "configmaps").cache
    watchers = [await harness.watch(CONFIGMAPS) for _ in range(5)]
    await watchers[0].close()
    assert cache.watch_count == 4
    await harness.api.stop()
    await settle()
    assert all(watcher.ended for watcher in watchers)
    assert cache.watch_count == 0


async def test_tables_have_column_definitions_in_the_first_event_only(harness: ServerHarness) -> None:
    accept = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    watcher = await harness.watch(CONFIGMAPS, headers=accept)
    await make(harness, "a")
    await change(harness, "a", "1")
    kinds = [(event["object"]["kind"], bool(event["object"]["columnDefinitions"])) for event in watcher.events]
    assert kinds == [("Table", True), ("Table", False)]


async def test_ages_in_a_table_are_current(harness: ServerHarness) -> None:
    watcher = await harness.watch(CONFIGMAPS, headers={"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
    await make(harness, "a")
    await harness.clock.advance(7)
    await change(harness, "a", "1")
    assert [event["object"]["rows"][0]["cells"][-1] for event in watcher.events] == ["0s", "7s"]


async def test_a_watch_from_a_future_revision_waits_for_it(harness: ServerHarness) -> None:
    future = harness.store.revision + 6
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={future}")
    made = [await make(harness, name) for name in "abcdefgh"]
    expected = [obj["metadata"]["name"] for obj in made if int(obj["metadata"]["resourceVersion"]) > future]
    assert watcher.summary == [("ADDED", name) for name in expected]
    assert 0 < len(expected) < 8


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), writers=st.integers(2, 12))
def test_events_are_never_reordered(seed: int, writers: int) -> None:
    """Many write the same few objects at once: each object's events come in the order of its revisions, each state
    once, and the last is what is there."""
    from server_harness import YieldingStore

    async def play() -> None:
        harness = await ServerHarness.open(YieldingStore(seed))
        watcher = await harness.watch(CONFIGMAPS)
        rng = random.Random(seed)

        async def write(number: int) -> None:
            for step in range(6):
                name = f"o{rng.randrange(3)}"
                what = rng.random()
                if what < 0.4:
                    await harness.post(CONFIGMAPS, {"metadata": {"name": name}})
                elif what < 0.85:
                    await harness.patch(f"{CONFIGMAPS}/{name}", {"data": {f"w{number}": str(step)}})
                else:
                    await harness.delete(f"{CONFIGMAPS}/{name}")

        async with asyncio.TaskGroup() as tasks:
            for number in range(writers):
                tasks.create_task(write(number))
        revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watcher.events]
        assert revisions == sorted(set(revisions))
        state: dict[str, Any] = {}
        for event in watcher.events:
            name = event["object"]["metadata"]["name"]
            assert (event["type"] == "ADDED") == (name not in state)
            if event["type"] == "DELETED":
                del state[name]
            else:
                state[name] = event["object"]
        for item in (await harness.get(CONFIGMAPS)).json["items"]:
            seen = state.pop(item["metadata"]["name"])
            assert {key: seen[key] for key in item} == item
        assert not state
        await harness.close()

    asyncio.run(play())


@pytest.mark.parametrize("path", ["/api/v1/secrets", "/apis/apps/v1/deployments", "/api/v1/namespaces"])
async def test_initial_state_precedes_changes(full_harness: ServerHarness, path: str) -> None:
    watcher = await full_harness.watch(path)
    listed = (await full_harness.get(path)).json["items"]
    assert [event["object"]["metadata"]["uid"] for event in watcher.events] == [
        item["metadata"]["uid"] for item in listed
    ]


async def test_changes_during_the_initial_state_follow_it(harness: ServerHarness) -> None:
    for number in range(150):
        await make(harness, f"o{number:03}")
    slow = asyncio.Event()
    watcher = await harness.watch(
        f"{CONFIGMAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", slow=slow
    )
    begun = harness.store.revision
    assert 0 < len(watcher.events) < 150
    await change(harness, "o149", "changed")
    await harness.delete(f"{CONFIGMAPS}/o148")
    await make(harness, "o150")
    await harness.clock.advance(120)  # no bookmark overtakes what was not told of
    assert len(watcher.events) < 150
    slow.set()
    await settle()
    present, (bookmark, *since) = watcher.events[:150], watcher.events[150:]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in present] == [
        ("ADDED", f"o{n:03}") for n in range(150)
    ]
    assert "data" not in present[149]["object"]
    assert (bookmark["type"], bookmark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(begun))
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in since] == [
        ("MODIFIED", "o149"),
        ("DELETED", "o148"),
        ("ADDED", "o150"),
    ]
    await change(harness, "o000", "later")
    assert watcher.events[-1]["object"]["data"] == {"v": "later"}


async def test_a_slow_reader_continues_from_history_without_a_buffer(harness: ServerHarness) -> None:
    for number in range(100):
        await make(harness, f"o{number:02}")
    slow = asyncio.Event()
    watcher = await harness.watch(CONFIGMAPS, slow=slow)
    for number in range(20):
        await change(harness, "o01", str(number) + "x" * 900_000)
    await settle()
    assert not watcher.ended and len(watcher.events) == 32
    assert harness.api.resources.registry("", "configmaps").cache.watch_count == 0, "no change is kept for it"
    slow.set()
    await settle(30)
    assert [event["object"]["data"]["v"].rstrip("x") for event in watcher.events[100:]] == [str(n) for n in range(20)]
    await change(harness, "o01", "live")
    assert watcher.events[-1]["object"]["data"] == {"v": "live"}


@pytest.mark.parametrize("query", ["", "?resourceVersion=1"])
async def test_a_reader_slower_than_compaction_gets_expired(harness: ServerHarness, query: str) -> None:
    for number in range(100):
        await make(harness, f"o{number}")
    slow = asyncio.Event()
    watcher = await harness.watch(CONFIGMAPS + query, slow=slow)
    await change(harness, "o1", "1")
    await change(harness, "o2", "2")
    await harness.store.compact(harness.store.revision)
    sent = len(watcher.events)
    slow.set()
    await settle(30)
    *_, last = watcher.events
    assert watcher.ended and (last["type"], last["object"]["code"]) == ("ERROR", 410)
    assert sent < 100


async def test_a_long_history_is_sent_in_steps(harness: ServerHarness) -> None:
    """Other requests are answered between the steps, and what they change comes in its place."""
    first = await make(harness, "a")
    for number in range(150):
        await change(harness, "a", str(number))
    slow = asyncio.Event()
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={first['metadata']['resourceVersion']}", slow=slow)
    assert len(watcher.events) == 32
    for number in range(150, 200):
        await change(harness, "a", str(number))
    slow.set()
    await settle(40)
    await change(harness, "a", "200")
    assert [event["object"]["data"]["v"] for event in watcher.events] == [str(number) for number in range(201)]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watcher.events]
    assert revisions == sorted(set(revisions))


async def test_a_watch_catches_up_with_writers_that_fill_every_turn_of_the_loop(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drained(_: Watcher) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Watcher, "drained", drained)
    await make(harness, "a")
    begin, cache = harness.store.revision, harness.api.resources.registries[("", "v1", "configmaps")].cache
    stored = await harness.store.get("core/configmaps/default/a")
    assert stored is not None
    meta = orjson.loads(stored.value)["metadata"]
    del meta["resourceVersion"]
    value, stamp = stamp_offset(orjson.dumps({"metadata": meta}))

    async def write_in_every_turn() -> None:
        while not cache.watch_count:
            for _ in range(100):
                await harness.store.txn([Put("core/configmaps/default/a", value, None, stamp)])
            assert harness.store.revision < begin + 20_000, "it never catches up"
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_in_every_turn())
        await asyncio.sleep(0)
        watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={begin}")
    await watcher.close()


async def test_watches_that_catch_up_together_share_their_frames(harness: ServerHarness) -> None:
    first = await make(harness, "a", app="x")
    for number in range(100):
        await change(harness, "a", str(number))
    slow, cache = asyncio.Event(), harness.api.resources.registry("", "configmaps").cache
    path = f"{CONFIGMAPS}?labelSelector=app%3Dx&resourceVersion={first['metadata']['resourceVersion']}"
    watchers = [await harness.watch(path, slow=slow) for _ in range(5)]
    slow.set()
    await settle(40)
    assert [event["object"]["data"]["v"] for event in watchers[0].events] == [str(number) for number in range(100)]
    # The first read its step before there were others to share it with.
    one, *others = (watcher.pieces for watcher in watchers[1:])
    assert all(mine is theirs for other in others for mine, theirs in zip(one, other, strict=True))
    assert cache._replayed == {}, "nothing is kept once all have caught up"


async def test_a_watch_that_catches_up_ends_with_the_server(harness: ServerHarness) -> None:
    for number in range(100):
        await make(harness, f"o{number}")
    slow = asyncio.Event()
    watcher = await harness.watch(CONFIGMAPS, slow=slow)
    await harness.api.stop()
    slow.set()
    await settle(30)
    assert watcher.ended


async def test_resuming_a_watch_does_not_depend_on_other_resources(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make(harness, "a")
    for number in range(3_000):
        await harness.store.txn([Put(f"core/secrets/default/s{number % 10}", b"{}")])
    await change(harness, "a", "1")
    steps = 0
    replay = harness.store.replay

    async def counted(prefix: str, after: int, limit: int) -> Replay:
        nonlocal steps
        steps += 1
        return await replay(prefix, after, limit)

    monkeypatch.setattr(harness.store, "replay", counted)
    watcher = await harness.watch(f"{CONFIGMAPS}?resourceVersion={first['metadata']['resourceVersion']}")
    assert watcher.summary == [("MODIFIED", "a")]
    assert steps == 1
