from __future__ import annotations

from datetime import UTC, datetime

from running_loops import RunningLoops
from server_harness import EPOCH, ServerHarness

from setpoint.apiserver.upkeep.event_expiry import EventExpiry, last_seen

STORES = ("memory", "lagging")

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}


async def names(harness: ServerHarness) -> list[str]:
    return [item["metadata"]["name"] for item in (await harness.get(EVENTS)).json["items"]]


async def test_events_expire_after_their_last_write(harness: ServerHarness, running: RunningLoops) -> None:
    await harness.make(EVENTS, event("before"))
    await harness.clock.advance(600)
    running.start(EventExpiry(harness.api.resources, 3600).run())
    await harness.clock.advance(0)
    await harness.make(EVENTS, event("a"))
    await harness.make(EVENTS, event("b"))
    await harness.clock.advance(2999)
    assert await names(harness) == ["a", "b", "before"]
    await harness.clock.advance(2)
    assert await names(harness) == ["a", "b"]
    await harness.patch(f"{EVENTS}/b", {"reason": "again"})
    await harness.clock.advance(600)
    assert await names(harness) == ["b"]
    await harness.clock.advance(3001)
    assert await names(harness) == []


async def test_events_of_the_start_expire_by_their_age_and_are_not_kept_decoded(
    harness: ServerHarness, running: RunningLoops
) -> None:
    for number in range(150):
        await harness.make(EVENTS, event(f"e{number:03}"))
        await harness.clock.advance(1)
    cache = harness.api.resources.registry("", "events").cache
    cache.settle(10**6, 1000)
    running.start(EventExpiry(harness.api.resources, 300).run())
    await harness.clock.advance(0)
    await harness.make(EVENTS, event("new"))
    assert [entry.key for entry in cache.scan() if entry.obj_in_memory is not None] == []
    await harness.clock.advance(200)
    assert await names(harness) == [*(f"e{number:03}" for number in range(51, 150)), "new"]
    await harness.clock.advance(100)
    assert await names(harness) == ["new"]
    await harness.clock.advance(1)
    assert await names(harness) == []


async def test_watchers_see_the_deletion(harness: ServerHarness, running: RunningLoops) -> None:
    running.start(EventExpiry(harness.api.resources, 60).run())
    await harness.clock.advance(0)
    watcher = await harness.watch(EVENTS)
    for i in range(250):
        await harness.make(EVENTS, event(f"e{i:03}"))
    await harness.clock.advance(61)
    assert [kind for kind, _ in watcher.summary] == ["ADDED"] * 250 + ["DELETED"] * 250


def test_the_latest_time_counts() -> None:
    meta = {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"time": "2025-12-31T00:00:00Z"}]}
    assert last_seen({"metadata": meta}, datetime(2027, 1, 1, tzinfo=UTC)) == EPOCH
    seen = {"metadata": meta, "series": {"lastObservedTime": "2026-01-02T00:00:00.000000Z"}}
    assert last_seen(seen, datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 2, tzinfo=UTC)
    # A time in the future does not retain an Event for years.
    assert last_seen(seen, EPOCH) == EPOCH
    assert last_seen({"metadata": {}}, EPOCH) == EPOCH
