"""What can be seen of who waits: `/debug/api_priority_and_fairness/...`, through the front door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from front_door import LIMITED_TOKEN, FrontDoor, Reply, YieldingStore, settle

_FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
_MAPS = "/api/v1/namespaces/default/configmaps"
_DUMP = "/debug/api_priority_and_fairness/dump_"


@pytest.fixture
async def narrow_door() -> AsyncIterator[FrontDoor]:
    """`limited` may write ConfigMaps, on a level of its own that has one seat; and somebody holds it."""
    door = await FrontDoor.open(YieldingStore(), modes=["AlwaysAllow"])
    queuing = {"queues": 3, "handSize": 1, "queueLengthLimit": 2}
    response = {"type": "Queue", "queuing": queuing}
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 300, "limitResponse": response}
    level = {"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": limited}}
    await door.make(f"{_FLOW}/prioritylevelconfigurations", level)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": "narrow"}, "matchingPrecedence": 100,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "limited"}}], "resourceRules": [everything]}],
        "distinguisherMethod": {"type": "ByUser"},
    }  # fmt: skip
    await door.make(f"{_FLOW}/flowschemas", {"metadata": {"name": "narrow-schema"}, "spec": spec})
    await door.get(_MAPS, token=LIMITED_TOKEN)
    queues = _queues(door)
    queues.limit, queues.in_use = 1, 1
    yield door
    await door.close()


def _queues(door: FrontDoor) -> Any:
    assert door.api.fairness is not None
    return door.api.fairness.levels["narrow"].queues


def _writes(door: FrontDoor, count: int) -> list[asyncio.Task[Reply]]:
    return [
        asyncio.ensure_future(door.post(_MAPS, {"metadata": {"name": f"m{number}"}}, token=LIMITED_TOKEN))
        for number in range(count)
    ]


async def _rows(door: FrontDoor, what: str) -> list[dict[str, str]]:
    reply = await door.get(_DUMP + what)
    assert (reply.status, reply.header("Content-Type")) == (200, "text/plain; charset=utf-8")
    header, *lines = ([cell.strip() for cell in line.split(",")] for line in reply.body.decode().splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


async def _narrow(door: FrontDoor, what: str) -> list[dict[str, str]]:
    return [row for row in await _rows(door, what) if row["PriorityLevelName"] == "narrow"]


async def test_levels_are_counted(narrow_door: FrontDoor) -> None:
    assert narrow_door.api.fairness is not None
    running = asyncio.ensure_future(narrow_door.api.fairness.run())
    one, gone, _ = _writes(narrow_door, 3)
    await settle()
    (row,) = await _narrow(narrow_door, "priority_levels")
    assert row == {
        "PriorityLevelName": "narrow", "ActiveQueues": "1", "IsIdle": "false", "IsQuiescing": "false",
        "WaitingRequests": "2", "ExecutingRequests": "0", "DispatchedRequests": "1", "RejectedRequests": "1",
        "TimedoutRequests": "0", "CancelledRequests": "0",
    }  # fmt: skip
    gone.cancel()
    await settle()
    (row,) = await _narrow(narrow_door, "priority_levels")
    counts = ("WaitingRequests", "RejectedRequests", "CancelledRequests", "TimedoutRequests")
    assert [row[name] for name in counts] == ["1", "2", "1", "0"]
    # Who has waited too long counts as one who went away, as upstream.
    await narrow_door.clock.advance(20)
    assert (await one).status == 429
    (row,) = await _narrow(narrow_door, "priority_levels")
    assert [row[name] for name in counts] == ["0", "3", "2", "0"]
    running.cancel()


async def test_queues_show_who_stands_in_them(narrow_door: FrontDoor) -> None:
    writes = _writes(narrow_door, 2)
    await settle()
    rows = await _narrow(narrow_door, "queues")
    assert [row["Index"] for row in rows] == ["0", "1", "2"]
    (at,) = (number for number, row in enumerate(rows) if row["PendingRequests"] != "0")
    empty, none = {"InitialSeatsSum": "0", "MaxSeatsSum": "0", "TotalWorkSum": "0.00000000ss"}, "0.00000000ss"
    expected = {
        "PriorityLevelName": "narrow", "Index": str(at), "PendingRequests": "2", "ExecutingRequests": "0",
        "SeatsInUse": "0", "NextDispatchR": none, "InitialSeatsSum": "2", "MaxSeatsSum": "2",
        "TotalWorkSum": "2.00000000ss",
    }  # fmt: skip
    assert rows[at] == expected
    # Both are called when there are seats and the next one comes.
    _queues(narrow_door).limit = 5
    other = asyncio.ensure_future(narrow_door.get(_MAPS, token=LIMITED_TOKEN))
    for _ in range(100):
        assert narrow_door.api.fairness is not None
        if any(seat.began for seat in narrow_door.api.fairness.under_way if seat.waiting):
            break
        await settle(1)
    seated = [row for row in await _narrow(narrow_door, "queues") if row["SeatsInUse"] != "0"]
    assert [row["Index"] for row in seated] == [str(at)]
    assert [(await task).status for task in (*writes, other)] == [201, 201, 200]
    row = (await _narrow(narrow_door, "queues"))[at]
    assert row == expected | empty | {"PendingRequests": "0", "NextDispatchR": row["NextDispatchR"]}
    assert row["NextDispatchR"] in ("2.00000000ss", "3.00000000ss")  # the third may have found a seat at once
    assert not narrow_door.api.fairness.under_way


async def test_requests_tell_whose_they_are(narrow_door: FrontDoor) -> None:
    writes = _writes(narrow_door, 2)
    await settle()
    rows = await _narrow(narrow_door, "requests")
    queue = rows[0]["QueueIndex"]
    assert [row["RequestIndexInQueue"] for row in rows] == ["0", "1"]
    assert rows[0] == {
        "PriorityLevelName": "narrow", "FlowSchemaName": "narrow-schema", "QueueIndex": queue,
        "RequestIndexInQueue": "0", "FlowDistingsher": "limited", "ArriveTime": "2026-01-01T00:00:00Z",
        "InitialSeats": "1", "FinalSeats": "0", "AdditionalLatency": "0s", "StartTime": "0001-01-01T00:00:00Z",
    }  # fmt: skip
    assert queue in {"0", "1", "2"}
    await narrow_door.clock.advance(1.5)
    rows = await _rows(narrow_door, "requests?includeRequestDetails=1")
    own = next(row for row in rows if row["PriorityLevelName"] == "exempt")
    assert own == {
        "PriorityLevelName": "exempt", "FlowSchemaName": "exempt", "QueueIndex": "-1", "RequestIndexInQueue": "-1",
        "FlowDistingsher": "", "ArriveTime": "2026-01-01T00:00:01.5Z", "InitialSeats": "1", "FinalSeats": "0",
        "AdditionalLatency": "0s", "StartTime": "2026-01-01T00:00:01.5Z", "UserName": "admin", "Verb": "get",
        "APIPath": f"{_DUMP}requests", "Namespace": "", "Name": "", "APIVersion": "", "Resource": "", "SubResource": "",
    }  # fmt: skip
    details = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
    waiting = [[row[name] for name in details] for row in rows if row["PriorityLevelName"] == "narrow"]
    assert waiting == [["limited", "create", _MAPS, "default", "", "v1", "configmaps", ""]] * 2
    for task in writes:
        task.cancel()
    await settle()
    assert await _narrow(narrow_door, "requests") == []


async def test_columns_are_aligned(narrow_door: FrontDoor) -> None:
    lines = (await narrow_door.get(f"{_DUMP}queues")).body.decode().splitlines()
    assert lines[0] == (
        "PriorityLevelName, Index,  PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, "
        "MaxSeatsSum, TotalWorkSum"
    )
    assert lines[1] == (
        "narrow,            0,      0,               0,                 0,          0.00000000ss,  0,               "
        "0,           0.00000000ss"
    )


async def test_who_may_look(door: FrontDoor) -> None:
    reply = await door.get(f"{_DUMP}queues", token=LIMITED_TOKEN)
    path = f"{_DUMP}queues"
    assert (reply.status, reply.message) == (403, f'forbidden: User "limited" cannot get path "{path}"')
    assert not [path for path in (await door.get("/")).json["paths"] if path.startswith("/debug")]
    for path in (f"{_DUMP}queues/", f"{_DUMP}all", "/debug/api_priority_and_fairness"):
        assert (await door.get(path)).status == 404
    without = await FrontDoor.open(enable_priority_and_fairness=False)
    assert (await without.get(f"{_DUMP}queues")).status == 404
    await without.close()
