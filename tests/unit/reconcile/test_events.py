"""Events: written, counted, never in the way."""

from __future__ import annotations

import asyncio
from typing import Any

from stopped_clock import settle

from setpoint.client.resources import builtin
from setpoint.reconcile import EventRecorder

EVENTS = builtin("events")
POD = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}  # fmt: skip


async def test_events_are_written_and_the_same_one_is_counted(local_server: Any) -> None:
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
        "apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default", "uid": "u", "resourceVersion": "7",
    }  # fmt: skip


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
