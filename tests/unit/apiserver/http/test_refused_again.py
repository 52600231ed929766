"""Whoever was refused and comes again at once waits for a turn before anything is looked at."""

from __future__ import annotations

from typing import Any

from stopped_clock import StoppedClock
from wire_harness import LoopClock, MemoryTransport, settle

from setpoint.apiserver.http.message import Request, Response
from setpoint.apiserver.http.server import Server
from setpoint.apiserver.turns import Turns

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


class Waited(Turns):
    count = 0

    async def wait(self, cost: float, **options: Any) -> None:
        self.count += 1
        await super().wait(cost, **options)


async def test_who_was_refused_waits_before_he_is_heard_again() -> None:
    statuses = [401, 401, 200, 429, 200, 200]
    waited: list[int] = []
    turns = Waited(StoppedClock())

    async def handler(request: Request) -> Response:
        waited.append(turns.count)
        return Response(statuses[len(waited) - 1])

    server = Server(handler, clock=LoopClock(), turns=turns)
    transport = MemoryTransport(server.connection())
    for _ in statuses:
        transport.connection.data_received(GET)
        await settle()
    assert waited == [0, 1, 2, 2, 3, 3]
    await server.stop(0)
