"""The debug tables at `/debug/api_priority_and_fairness/...`, through the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_harness import LIMITED_TOKEN, Reply, ServerHarness, YieldingStore, settle

_FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
_MAPS = "/api/v1/namespaces/default/configmaps"
_DUMP = "/debug/api_priority_and_fairness/dump_"


@pytest.fixture
async def limited_harness() -> AsyncIterator[ServerHarness]:
    """`limited` may write ConfigMaps, on a level with one seat that is in use."""
    harness = await ServerHarness.open(YieldingStore(), modes=["AlwaysAllow"])
    queuing = {"queues": 3, "handSize": 1, "queueLengthLimit": 2}
    response = {"type": "Queue", "queuing": queuing}
    limited = {"nominalConcurrencyShares": 0, "borrowingLimitPercent": 300, "limitResponse": response}
    level = {"metadata": {"name": "narrow"}, "spec": {"type": "Limited", "limited": limited}}
    await harness.make(f"{_FLOW}/prioritylevelconfigurations", level)
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
    spec = {
        "priorityLevelConfiguration": {"name": "narrow"},
        "matchingPrecedence": 100,
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "limited"}}], "resourceRules": [everything]}],
        "distinguisherMethod": {"type": "ByUser"},
    }
    await harness.make(f"{_FLOW}/flowschemas", {"metadata": {"name": "narrow-schema"}, "spec": spec})
    await harness.get(_MAPS, token=LIMITED_TOKEN)
    queues = _queues(harness)
    queues.limit, queues.in_use = 1, 1
    yield harness
    await harness.close()


def _queues(harness: ServerHarness) -> Any:
    assert harness.api.parts.fairness is not None
    return harness.api.parts.fairness.levels["narrow"].queues


def _writes(harness: ServerHarness, count: int) -> list[asyncio.Task[Reply]]:
    return [
        asyncio.ensure_future(harness.post(_MAPS, {"metadata": {"name": f"m{number}"}}, token=LIMITED_TOKEN))
        for number in range(count)
    ]


async def _rows(harness: ServerHarness, what: str) -> list[dict[str, str]]:
    reply = await harness.get(_DUMP + what)
    assert (reply.status, reply.header("Content-Type")) == (200, "text/plain; charset=utf-8")
    header, *lines = ([cell.strip() for cell in line.split(",")] for line in reply.body.decode().splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


async def _narrow(harness: ServerHarness, what: str) -> list[dict[str, str]]:
    return [row for row in await _rows(harness, what) if row["PriorityLevelName"] == "narrow"]


async def test_levels_are_counted(limited_harness: ServerHarness) -> None:
    assert limited_harness.api.parts.fairness is not None
    running = asyncio.ensure_future(limited_harness.api.parts.fairness.run())
    one, gone, _ = _writes(limited_harness, 3)
    await settle()
    (row,) = await _narrow(limited_harness, "priority_levels")
    assert row == {
        "PriorityLevelName": "narrow",
        "ActiveQueues": "1",
        "IsIdle": "false",
        "IsQuiescing": "false",
        "WaitingRequests": "2",
        "ExecutingRequests": "0",
        "DispatchedRequests": "1",
        "RejectedRequests": "1",
        "TimedoutRequests": "0",
        "CancelledRequests": "0",
    }
    gone.cancel()
    await settle()
    (row,) = await _narrow(limited_harness, "priority_levels")
    counts = ("WaitingRequests", "RejectedRequests", "CancelledRequests", "TimedoutRequests")
    assert [row[name] for name in counts] == ["1", "2", "1", "0"]
    # A timed-out request counts as cancelled, as upstream.
    await limited_harness.clock.advance(20)
    assert (await one).status == 429
    (row,) = await _narrow(limited_harness, "priority_levels")
    assert [row[name] for name in counts] == ["0", "3", "2", "0"]
    running.cancel()


async def test_queues_show_their_requests(limited_harness: ServerHarness) -> None:
    writes = _writes(limited_harness, 2)
    await settle()
    rows = await _narrow(limited_harness, "queues")
    assert [row["Index"] for row in rows] == ["0", "1", "2"]
    (at,) = (number for number, row in enumerate(rows) if row["PendingRequests"] != "0")
    empty, none = {"InitialSeatsSum": "0", "MaxSeatsSum": "0", "TotalWorkSum": "0.00000000ss"}, "0.00000000ss"
    expected = {
        "PriorityLevelName": "narrow",
        "Index": str(at),
        "PendingRequests": "2",
        "ExecutingRequests": "0",
        "SeatsInUse": "0",
        "NextDispatchR": none,
        "InitialSeatsSum": "2",
        "MaxSeatsSum": "2",
        "TotalWorkSum": "2.00000000ss",
    }
    assert rows[at] == expected
    # Both are dispatched when there are seats and the next request arrives.
    _queues(limited_harness).limit = 5
    other = asyncio.ensure_future(limited_harness.get(_MAPS, token=LIMITED_TOKEN))
    for _ in range(100):
        assert limited_harness.api.parts.fairness is not None
        if any(request.started for request in limited_harness.api.parts.fairness.requests if request.queued):
            break
        await settle(1)
    seated = [row for row in await _narrow(limited_harness, "queues") if row["SeatsInUse"] != "0"]
    assert [row["Index"] for row in seated] == [str(at)]
    assert [(await task).status for task in (*writes, other)] == [201, 201, 200]
    row = (await _narrow(limited_harness, "queues"))[at]
    assert row == expected | empty | {"PendingRequests": "0", "NextDispatchR": row["NextDispatchR"]}
    assert row["NextDispatchR"] in ("2.00000000ss", "3.00000000ss")  # the third may have found a seat at once
    assert limited_harness.api.parts.fairness is not None and not limited_harness.api.parts.fairness.requests


async def test_requests_show_their_users(limited_harness: ServerHarness) -> None:
    writes = _writes(limited_harness, 2)
    await settle()
    rows = await _narrow(limited_harness, "requests")
    queue = rows[0]["QueueIndex"]
    assert [row["RequestIndexInQueue"] for row in rows] == ["0", "1"]
    assert rows[0] == {
        "PriorityLevelName": "narrow",
        "FlowSchemaName": "narrow-schema",
        "QueueIndex": queue,
        "RequestIndexInQueue": "0",
        "FlowDistingsher": "limited",
        "ArriveTime": "2026-01-01T00:00:00Z",
        "InitialSeats": "1",
        "FinalSeats": "0",
        "AdditionalLatency": "0s",
        "StartTime": "0001-01-01T00:00:00Z",
    }
    assert queue in {"0", "1", "2"}
    await limited_harness.clock.advance(1.5)
    rows = await _rows(limited_harness, "requests?includeRequestDetails=1")
    own = next(row for row in rows if row["PriorityLevelName"] == "exempt")
    assert own == {
        "PriorityLevelName": "exempt",
        "FlowSchemaName": "exempt",
        "QueueIndex": "-1",
        "RequestIndexInQueue": "-1",
        "FlowDistingsher": "",
        "ArriveTime": "2026-01-01T00:00:01.5Z",
        "InitialSeats": "1",
        "FinalSeats": "0",
        "AdditionalLatency": "0s",
        "StartTime": "2026-01-01T00:00:01.5Z",
        "UserName": "admin",
        "Verb": "get",
        "APIPath": f"{_DUMP}requests",
        "Namespace": "",
        "Name": "",
        "APIVersion": "",
        "Resource": "",
        "SubResource": "",
    }
    details = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
    waiting = [[row[name] for name in details] for row in rows if row["PriorityLevelName"] == "narrow"]
    assert waiting == [["limited", "create", _MAPS, "default", "", "v1", "configmaps", ""]] * 2
    for task in writes:
        task.cancel()
    await settle()
    assert await _narrow(limited_harness, "requests") == []


async def test_columns_are_aligned(limited_harness: ServerHarness) -> None:
    lines = (await limited_harness.get(f"{_DUMP}queues")).body.decode().splitlines()
    assert lines[0] == (
        "PriorityLevelName, Index,  PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, "
        "MaxSeatsSum, TotalWorkSum"
    )
    assert lines[1] == (
        "narrow,            0,      0,               0,                 0,          0.00000000ss,  0,               "
        "0,           0.00000000ss"
    )


async def test_access_is_authorized(harness: ServerHarness) -> None:
    reply = await harness.get(f"{_DUMP}queues", token=LIMITED_TOKEN)
    path = f"{_DUMP}queues"
    assert (reply.status, reply.message) == (403, f'forbidden: User "limited" cannot get path "{path}"')
    assert not [path for path in (await harness.get("/")).json["paths"] if path.startswith("/debug")]
    for path in (f"{_DUMP}queues/", f"{_DUMP}all", "/debug/api_priority_and_fairness"):
        assert (await harness.get(path)).status == 404
    without = await ServerHarness.open(enable_priority_and_fairness=False)
    assert (await without.get(f"{_DUMP}queues")).status == 404
    await without.close()
