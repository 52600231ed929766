from __future__ import annotations

from datetime import UTC, datetime

from front_door import EPOCH, FrontDoor

from setpoint.apiserver.upkeep.event_expiry import EventExpiry, last_seen

STORES = ("memory", "lagging")

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}}


async def names(door: FrontDoor) -> list[str]:
    return [item["metadata"]["name"] for item in (await door.get(EVENTS)).json["items"]]


async def test_events_go_after_their_last_write(door: FrontDoor, running) -> None:
    await door.make(EVENTS, event("before"))
    await door.clock.advance(600)
    running.start(EventExpiry(door.api, 3600).run())
    await door.clock.advance(0)
    await door.make(EVENTS, event("a"))
    await door.make(EVENTS, event("b"))
    await door.clock.advance(2999)
    assert await names(door) == ["a", "b", "before"]
    await door.clock.advance(2)
    assert await names(door) == ["a", "b"]
    await door.patch(f"{EVENTS}/b", {"reason": "again"})
    await door.clock.advance(600)
    assert await names(door) == ["b"]
    await door.clock.advance(3000)
    assert await names(door) == []


async def test_watchers_see_them_go(door: FrontDoor, running) -> None:
    running.start(EventExpiry(door.api, 60).run())
    await door.clock.advance(0)
    watcher = await door.watch(EVENTS)
    for i in range(250):
        await door.make(EVENTS, event(f"e{i:03}"))
    await door.clock.advance(61)
    assert [kind for kind, _ in watcher.summary] == ["ADDED"] * 250 + ["DELETED"] * 250


def test_the_youngest_time_counts() -> None:
    meta = {"creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"time": "2025-12-31T00:00:00Z"}]}
    assert last_seen({"metadata": meta}, datetime(2027, 1, 1, tzinfo=UTC)) == EPOCH
    seen = {"metadata": meta, "series": {"lastObservedTime": "2026-01-02T00:00:00.000000Z"}}
    assert last_seen(seen, datetime(2027, 1, 1, tzinfo=UTC)) == datetime(2026, 1, 2, tzinfo=UTC)
    # A clock that went wrong does not keep an Event for years.
    assert last_seen(seen, EPOCH) == EPOCH
    assert last_seen({"metadata": {}}, EPOCH) == EPOCH
