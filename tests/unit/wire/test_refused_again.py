"""Rate limiting of clients after an authentication failure."""

from __future__ import annotations

from typing import Any

from http_harness import LoopClock, MemoryTransport, settle
from stopped_clock import StoppedClock

from setpoint.wire.loop_slices import LoopSlicer
from setpoint.wire.message import Request, Response
from setpoint.wire.server import Server

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


class Waited(LoopSlicer):
    count = 0

    async def wait(self, cost: float, **options: Any) -> None:
        self.count += 1
        await super().wait(cost, **options)


async def test_clients_are_rate_limited_after_an_authentication_failure() -> None:
    statuses = [401, 401, 200, 429, 200, 200]
    waited: list[int] = []
    slicer = Waited(StoppedClock())

    async def handler(request: Request) -> Response:
        waited.append(slicer.count)
        return Response(statuses[len(waited) - 1])

    server = Server(handler, clock=LoopClock(), slicer=slicer)
    transport = MemoryTransport(server.connection())
    for _ in statuses:
        transport.connection.data_received(GET)
        await settle()
    assert waited == [0, 1, 2, 2, 3, 3]
    await server.stop(0)
