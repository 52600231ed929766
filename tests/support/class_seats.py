"""Seats of a class for tests, and requests to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from setpoint.cluster.classroom.seats import SeatLimits, Seats
from setpoint.system import RandomIds
from setpoint.testing import VirtualCluster
from setpoint.wire.message import Request, Response

ANN, BOB = "s00000001", "s00000002"
PODS = "/api/v1/namespaces/default/pods"
FORKS = "/setpoint/v1/forks"


@asynccontextmanager
async def seats_for(cluster: VirtualCluster, *ids: str, **limits: float) -> AsyncIterator[Seats]:
    async with asyncio.TaskGroup() as tasks:
        seats = Seats(cluster.clock, RandomIds(7), tasks, 2, SeatLimits(**limits))  # type: ignore[arg-type]
        for each in ids:
            seats.add(each)
        yield seats
        for each in seats.ids:
            await seats.remove(each)


async def ask(seats: Seats, seat: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    path, _, query = path.partition("?")
    data = b"" if body is None else orjson.dumps(body)
    request = Request(method, path, query, {"content-type": "application/json"}, data, seats.peer(seat))
    answer = await seats.handle(request)
    assert isinstance(answer, Response)
    content = answer.whole_body
    return answer.status, orjson.loads(content) if content.startswith(b"{") else content.decode()
