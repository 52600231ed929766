"""What a watcher may rely on: ordered, complete, resumable, the same bytes for all."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import orjson
import pytest
from front_door import FrontDoor, Watcher, settle
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from setpoint.apiserver.encoding import stamp_offset
from setpoint.store.interface import Put, Replay

STORES = ("memory", "lagging")

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def make(door: FrontDoor, name: str, **labels: str) -> dict[str, Any]:
    return await door.make(CONFIGMAPS, {"metadata": {"name": name, "labels": labels}})


async def change(door: FrontDoor, name: str, value: str) -> dict[str, Any]:
    reply = await door.patch(f"{CONFIGMAPS}/{name}", {"data": {"v": value}})
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.json
    return found


async def test_the_life_of_an_object(door: FrontDoor) -> None:
    watcher = await door.watch(CONFIGMAPS)
    made = await make(door, "a")
    changed = await change(door, "a", "1")
    await door.delete(f"{CONFIGMAPS}/a")
    assert [event["type"] for event in watcher.events] == ["ADDED", "MODIFIED", "DELETED"]
    assert watcher.events[0]["object"] == made
    assert watcher.events[1]["object"] == changed
    gone = watcher.events[2]["object"]
    assert gone["data"] == {"v": "1"}
    assert int(gone["metadata"]["resourceVersion"]) == door.store.revision


async def test_resumable_from_every_revision(door: FrontDoor) -> None:
    watcher = await door.watch(f"{CONFIGMAPS}?resourceVersion={door.store.revision}")
    rng = random.Random(3)
    alive: set[str] = set()
    for step in range(60):
        name = f"o{rng.randrange(6)}"
        if name not in alive:
            await make(door, name)
            alive.add(name)
        elif rng.random() < 0.3:
            await door.delete(f"{CONFIGMAPS}/{name}")
            alive.discard(name)
        else:
            await change(door, name, str(step))
    everything = watcher.events
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in everything]
    assert revisions == sorted(set(revisions)) and len(revisions) == 60
    for place, revision in enumerate(revisions):
        again = await door.watch(f"{CONFIGMAPS}?resourceVersion={revision}")
        assert again.events == everything[place + 1 :]
        await again.close()


async def test_a_compacted_revision_is_expired_in_the_stream(door: FrontDoor) -> None:
    made = await make(door, "a")
    for value in range(5):
        await change(door, "a", str(value))
    await door.store.compact(door.store.revision)
    watcher = await door.watch(f"{CONFIGMAPS}?resourceVersion={made['metadata']['resourceVersion']}")
    (event,) = watcher.events
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    await settle()
    assert watcher.ended
    resumed = await door.watch(f"{CONFIGMAPS}?resourceVersion={door.store.revision}")
    await change(door, "a", "z")
    assert [event["type"] for event in resumed.events] == ["MODIFIED"]


async def test_entering_and_leaving_a_selection(door: FrontDoor) -> None:
    watcher = await door.watch(f"{CONFIGMAPS}?labelSelector=app%3Dx")
    await make(door, "a", app="y")
    assert watcher.events == []
    await door.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"app": "x"}}})
    await change(door, "a", "1")
    left = (await door.patch(f"{CONFIGMAPS}/a", {"metadata": {"labels": {"app": "y"}}})).json
    await change(door, "a", "2")
    await door.delete(f"{CONFIGMAPS}/a")
    assert [event["type"] for event in watcher.events] == ["ADDED", "MODIFIED", "DELETED"]
    last = watcher.events[2]["object"]
    assert last["metadata"]["labels"] == {"app": "x"}
    assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
    resumed = await door.watch(f"{CONFIGMAPS}?labelSelector=app%3Dx&resourceVersion=1")
    assert [event["type"] for event in resumed.events] == ["ADDED", "MODIFIED", "DELETED"]


async def test_one_name_one_namespace(door: FrontDoor) -> None:
    by_name = await door.watch(f"{CONFIGMAPS}?fieldSelector=metadata.name%3Da")
    by_path = await door.watch("/api/v1/watch/namespaces/default/configmaps/a")
    elsewhere = await door.watch("/api/v1/namespaces/other/configmaps")
    everywhere = await door.watch("/api/v1/configmaps")
    await make(door, "a")
    await make(door, "aa")
    await door.make("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "a"}})
    assert by_name.summary == by_path.summary == [("ADDED", "a")]
    assert elsewhere.summary == [("ADDED", "a")]
    assert everywhere.summary == [("ADDED", "a"), ("ADDED", "aa"), ("ADDED", "a")]


async def test_initial_events_and_their_end(door: FrontDoor) -> None:
    for name in ("a", "b"):
        await make(door, name)
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watcher = await door.watch(f"{CONFIGMAPS}?{query}")
    assert [event["type"] for event in watcher.events] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = watcher.events[2]["object"]
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["metadata"]["resourceVersion"]) == door.store.revision
    assert mark["kind"] == "ConfigMap"
    await make(door, "c")
    assert watcher.summary[-1] == ("ADDED", "c")


async def test_bookmarks_and_the_end_in_virtual_time(door: FrontDoor) -> None:
    watcher = await door.watch(f"{CONFIGMAPS}?allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion=1")
    await door.make("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    await door.clock.advance(61)
    marks = [event for event in watcher.events if event["type"] == "BOOKMARK"]
    assert [int(mark["object"]["metadata"]["resourceVersion"]) for mark in marks] == [door.store.revision]
    assert not watcher.ended
    await door.clock.advance(88)
    assert not watcher.ended
    await door.clock.advance(2)
    assert watcher.ended
    silent = await door.watch(f"{CONFIGMAPS}?timeoutSeconds=10&resourceVersion=1")
    await door.clock.advance(9)
    assert not silent.ended
    await door.clock.advance(2)
    assert silent.ended and silent.events == []


async def test_a_watch_lasts_half_an_hour_at_least(door: FrontDoor) -> None:
    watcher = await door.watch(CONFIGMAPS)
    await door.clock.advance(1799)
    assert not watcher.ended
    await door.clock.advance(1802)
    assert watcher.ended


async def test_all_watchers_get_the_very_same_bytes(door: FrontDoor) -> None:
    watchers = [await door.watch(CONFIGMAPS) for _ in range(50)]
    await make(door, "a")
    await change(door, "a", "1")
    await door.delete(f"{CONFIGMAPS}/a")
    first = watchers[0].pieces
    assert len(first) == 3
    assert all(one is other for watcher in watchers for one, other in zip(watcher.pieces, first, strict=True))


async def test_who_does_not_read_is_cut_off(door: FrontDoor) -> None:
    stuck = await door.watch(CONFIGMAPS, stuck=True)
    reader = await door.watch(CONFIGMAPS)
    await make(door, "a")
    for number in range(60):
        await change(door, "a", str(number) + "x" * 500_000)
        await settle()
        if stuck.ended:
            break
    assert stuck.ended and not reader.ended
    assert stuck.held < 20 * 2**20
    assert door.api.registry("", "configmaps").cache.watch_count == 1


async def test_every_watch_ends_with_the_server_and_with_its_client(door: FrontDoor) -> None:
    cache = door.api.registry("", "configmaps").cache
    watchers = [await door.watch(CONFIGMAPS) for _ in range(5)]
    await watchers[0].close()
    assert cache.watch_count == 4
    await door.api.stop()
    await settle()
    assert all(watcher.ended for watcher in watchers)
    assert cache.watch_count == 0


async def test_tables_name_their_columns_once(door: FrontDoor) -> None:
    accept = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    watcher = await door.watch(CONFIGMAPS, headers=accept)
    await make(door, "a")
    await change(door, "a", "1")
    kinds = [(event["object"]["kind"], bool(event["object"]["columnDefinitions"])) for event in watcher.events]
    assert kinds == [("Table", True), ("Table", False)]


async def test_ages_in_a_table_are_those_of_the_moment(door: FrontDoor) -> None:
    watcher = await door.watch(CONFIGMAPS, headers={"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"})
    await make(door, "a")
    await door.clock.advance(7)
    await change(door, "a", "1")
    assert [event["object"]["rows"][0]["cells"][-1] for event in watcher.events] == ["0s", "7s"]


async def test_a_watch_from_the_future_is_silent_until_then(door: FrontDoor) -> None:
    future = door.store.revision + 6
    watcher = await door.watch(f"{CONFIGMAPS}?resourceVersion={future}")
    made = [await make(door, name) for name in "abcdefgh"]
    expected = [obj["metadata"]["name"] for obj in made if int(obj["metadata"]["resourceVersion"]) > future]
    assert watcher.summary == [("ADDED", name) for name in expected]
    assert 0 < len(expected) < 8


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), writers=st.integers(2, 12))
def test_no_event_overtakes_another(seed: int, writers: int) -> None:
    """Many write the same few objects at once: each object's events come in the order of its revisions, each state
    once, and the last is what is there."""
    from front_door import YieldingStore

    async def play() -> None:
        door = await FrontDoor.open(YieldingStore(seed))
        watcher = await door.watch(CONFIGMAPS)
        rng = random.Random(seed)

        async def write(number: int) -> None:
            for step in range(6):
                name = f"o{rng.randrange(3)}"
                what = rng.random()
                if what < 0.4:
                    await door.post(CONFIGMAPS, {"metadata": {"name": name}})
                elif what < 0.85:
                    await door.patch(f"{CONFIGMAPS}/{name}", {"data": {f"w{number}": str(step)}})
                else:
                    await door.delete(f"{CONFIGMAPS}/{name}")

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
        for item in (await door.get(CONFIGMAPS)).json["items"]:
            seen = state.pop(item["metadata"]["name"])
            assert {key: seen[key] for key in item} == item
        assert not state
        await door.close()

    asyncio.run(play())


@pytest.mark.parametrize("path", ["/api/v1/secrets", "/apis/apps/v1/deployments", "/api/v1/namespaces"])
async def test_everything_present_comes_first(full_door: FrontDoor, path: str) -> None:
    watcher = await full_door.watch(path)
    listed = (await full_door.get(path)).json["items"]
    assert [event["object"]["metadata"]["uid"] for event in watcher.events] == [
        item["metadata"]["uid"] for item in listed
    ]


async def test_what_changes_while_the_present_is_told_comes_after_it(door: FrontDoor) -> None:
    for number in range(150):
        await make(door, f"o{number:03}")
    slow = asyncio.Event()
    watcher = await door.watch(f"{CONFIGMAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
                               "&allowWatchBookmarks=true", slow=slow)  # fmt: skip
    begun = door.store.revision
    assert 0 < len(watcher.events) < 150
    await change(door, "o149", "changed")
    await door.delete(f"{CONFIGMAPS}/o148")
    await make(door, "o150")
    await door.clock.advance(120)  # no bookmark overtakes what was not told of
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
        ("MODIFIED", "o149"), ("DELETED", "o148"), ("ADDED", "o150"),
    ]  # fmt: skip
    await change(door, "o000", "later")
    assert watcher.events[-1]["object"]["data"] == {"v": "later"}


async def test_a_slow_reader_is_caught_up_from_history_and_holds_nothing_else(door: FrontDoor) -> None:
    for number in range(100):
        await make(door, f"o{number:02}")
    slow = asyncio.Event()
    watcher = await door.watch(CONFIGMAPS, slow=slow)
    for number in range(20):
        await change(door, "o01", str(number) + "x" * 900_000)
    await settle()
    assert not watcher.ended and len(watcher.events) == 32
    assert door.api.registry("", "configmaps").cache.watch_count == 0, "no change is kept for it"
    slow.set()
    await settle(30)
    assert [event["object"]["data"]["v"].rstrip("x") for event in watcher.events[100:]] == [str(n) for n in range(20)]
    await change(door, "o01", "live")
    assert watcher.events[-1]["object"]["data"] == {"v": "live"}


@pytest.mark.parametrize("query", ["", "?resourceVersion=1"])
async def test_a_reader_that_is_slower_than_compaction_has_to_begin_anew(door: FrontDoor, query: str) -> None:
    for number in range(100):
        await make(door, f"o{number}")
    slow = asyncio.Event()
    watcher = await door.watch(CONFIGMAPS + query, slow=slow)
    await change(door, "o1", "1")
    await change(door, "o2", "2")
    await door.store.compact(door.store.revision)
    sent = len(watcher.events)
    slow.set()
    await settle(30)
    *_, last = watcher.events
    assert watcher.ended and (last["type"], last["object"]["code"]) == ("ERROR", 410)
    assert sent < 100


async def test_a_long_past_is_sent_in_steps_and_joins_the_present(door: FrontDoor) -> None:
    """Other requests are answered between the steps, and what they change comes in its place."""
    first = await make(door, "a")
    for number in range(150):
        await change(door, "a", str(number))
    slow = asyncio.Event()
    watcher = await door.watch(f"{CONFIGMAPS}?resourceVersion={first['metadata']['resourceVersion']}", slow=slow)
    assert len(watcher.events) == 32
    for number in range(150, 200):
        await change(door, "a", str(number))
    slow.set()
    await settle(40)
    await change(door, "a", "200")
    assert [event["object"]["data"]["v"] for event in watcher.events] == [str(number) for number in range(201)]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in watcher.events]
    assert revisions == sorted(set(revisions))


async def test_a_watch_catches_up_with_writers_that_fill_every_turn_of_the_loop(
    door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drained(_: Watcher) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Watcher, "drained", drained)
    await make(door, "a")
    begin, cache = door.store.revision, door.api.registries[("", "v1", "configmaps")].cache
    stored = await door.store.get("core/configmaps/default/a")
    assert stored is not None
    meta = orjson.loads(stored.value)["metadata"]
    del meta["resourceVersion"]
    value, stamp = stamp_offset(orjson.dumps({"metadata": meta}))

    async def write_in_every_turn() -> None:
        while not cache.watch_count:
            for _ in range(100):
                await door.store.txn([Put("core/configmaps/default/a", value, None, stamp)])
            assert door.store.revision < begin + 20_000, "it never catches up"
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write_in_every_turn())
        await asyncio.sleep(0)
        watcher = await door.watch(f"{CONFIGMAPS}?resourceVersion={begin}")
    await watcher.close()


async def test_watches_that_catch_up_together_share_their_frames(door: FrontDoor) -> None:
    first = await make(door, "a", app="x")
    for number in range(100):
        await change(door, "a", str(number))
    slow, cache = asyncio.Event(), door.api.registry("", "configmaps").cache
    path = f"{CONFIGMAPS}?labelSelector=app%3Dx&resourceVersion={first['metadata']['resourceVersion']}"
    watchers = [await door.watch(path, slow=slow) for _ in range(5)]
    slow.set()
    await settle(40)
    assert [event["object"]["data"]["v"] for event in watchers[0].events] == [str(number) for number in range(100)]
    # The first read its step before there were others to share it with.
    one, *others = (watcher.pieces for watcher in watchers[1:])
    assert all(mine is theirs for other in others for mine, theirs in zip(one, other, strict=True))
    assert cache._replayed == {}, "nothing is kept once all have caught up"


async def test_a_watch_that_catches_up_ends_with_the_server(door: FrontDoor) -> None:
    for number in range(100):
        await make(door, f"o{number}")
    slow = asyncio.Event()
    watcher = await door.watch(CONFIGMAPS, slow=slow)
    await door.api.stop()
    slow.set()
    await settle(30)
    assert watcher.ended


async def test_to_resume_a_watch_costs_nothing_for_what_happened_to_other_resources(
    door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await make(door, "a")
    for number in range(3_000):
        await door.store.txn([Put(f"core/secrets/default/s{number % 10}", b"{}")])
    await change(door, "a", "1")
    steps = 0
    replay = door.store.replay

    async def counted(prefix: str, after: int, limit: int) -> Replay:
        nonlocal steps
        steps += 1
        return await replay(prefix, after, limit)

    monkeypatch.setattr(door.store, "replay", counted)
    watcher = await door.watch(f"{CONFIGMAPS}?resourceVersion={first['metadata']['resourceVersion']}")
    assert watcher.summary == [("MODIFIED", "a")]
    assert steps == 1
