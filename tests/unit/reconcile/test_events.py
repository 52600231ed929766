"""Events are written and counted, and recording never blocks or raises."""

from __future__ import annotations

import asyncio
from typing import Any

from stopped_clock import settle

from setpoint.client.resources import builtin
from setpoint.reconcile import EventRecorder
from setpoint.reconcile.event_series import SeriesRecorder

EVENTS = builtin("events")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


async def test_events_are_written_and_repetitions_counted(local_server: Any) -> None:
    recorder = EventRecorder(local_server.client, local_server.clock, "tester", "here")
    task = asyncio.ensure_future(recorder.run())
    recorder.normal(POD, "Started", "it started")
    recorder.normal(POD, "Started", "it started")
    await settle()
    await local_server.clock.advance(60)
    recorder.normal(POD, "Started", "it started")
    recorder.warning(POD, "Started", "it started badly")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found = (await local_server.client.list(EVENTS, "default")).items
    assert sorted((event["type"], event["message"], event["count"]) for event in found) == [
        ("Normal", "it started", 3),
        ("Warning", "it started badly", 1),
    ]
    counted = next(event for event in found if event["type"] == "Normal")
    assert counted["firstTimestamp"] == "2030-01-01T00:00:00Z"
    assert counted["lastTimestamp"] == "2030-01-01T00:01:00Z"
    assert counted["source"] == {"component": "tester", "host": "here"}
    assert counted["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "7",
    }


async def test_an_event_that_cannot_be_written_does_not_stop_the_next(local_server: Any) -> None:
    recorder = EventRecorder(local_server.client, local_server.clock, "tester")
    task = asyncio.ensure_future(recorder.run())
    lost = {**POD, "metadata": {**POD["metadata"], "namespace": "nowhere"}}  # type: ignore[dict-item]
    recorder.normal(lost, "Lost", "nobody will read this")
    recorder.normal(POD, "Kept", "but this")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [event["reason"] for event in (await local_server.client.list(EVENTS)).items] == ["Kept"]


async def record(local_server: Any, *recorded: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the Events that exist after these (reason, message) pairs were recorded about one Pod."""
    recorder = EventRecorder(local_server.client, local_server.clock, "tester")
    task = asyncio.ensure_future(recorder.run())
    for reason, message in recorded:
        recorder.normal(POD, reason, message)
        await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    found: list[dict[str, Any]] = (await local_server.client.list(EVENTS, "default")).items
    return found


async def test_similar_events_are_aggregated(local_server: Any) -> None:
    found = await record(local_server, *(("Made", f"made {number}") for number in range(20)))
    messages = {event["message"]: event["count"] for event in found}
    assert messages == {**{f"made {number}": 1 for number in range(9)}, "(combined from similar events): made 19": 11}


async def test_events_about_one_object_are_rate_limited(local_server: Any) -> None:
    recorder = EventRecorder(local_server.client, local_server.clock, "tester")
    task = asyncio.ensure_future(recorder.run())
    for number in range(100):
        recorder.normal(POD, f"Reason{number}", "x")
        await settle()
    assert len((await local_server.client.list(EVENTS, "default")).items) == 25
    await local_server.clock.advance(301)
    for number in range(100, 110):
        recorder.normal(POD, f"Reason{number}", "x")
    recorder.normal({**POD, "metadata": {**POD["metadata"], "uid": "v"}}, "Other", "x")  # type: ignore[dict-item]
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    reasons = [event["reason"] for event in (await local_server.client.list(EVENTS, "default")).items]
    assert len(reasons) == 27
    assert {"Reason100", "Other"} <= set(reasons)


async def test_a_series_is_one_object(local_server: Any) -> None:
    recorder = SeriesRecorder(local_server.client, local_server.clock, "default-scheduler", "default-scheduler-here")
    task = asyncio.ensure_future(recorder.run())
    for _ in range(5):
        recorder.warning(POD, "FailedScheduling", "0/0 nodes are available", action="Scheduling")
        await settle()
    first = (await local_server.client.list(EVENTS, "default")).items
    assert [(event["reason"], event["series"]["count"]) for event in first] == [("FailedScheduling", 2)]
    assert first[0]["reportingComponent"] == "default-scheduler"
    assert first[0]["action"] == "Scheduling"
    await local_server.clock.advance(800)
    await settle()
    assert [event["series"]["count"] for event in (await local_server.client.list(EVENTS, "default")).items] == [5]
    recorder.warning(POD, "FailedScheduling", "0/0 nodes are available", action="Scheduling")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len((await local_server.client.list(EVENTS, "default")).items) == 2, "what is over begins anew"
