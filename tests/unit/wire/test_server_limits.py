"""Limits that all connections of a server share."""

from __future__ import annotations

import pytest
from http_harness import Serve, echo, until

from setpoint.wire.limits import Limits

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"a" * 900


async def test_connections_over_the_limit_are_closed(serve: Serve) -> None:
    served = await serve(echo, limits=Limits(connections=2))
    first, second = await served.connect(), await served.connect()
    for client in (first, second):
        client.send(GET)
        assert (await client.answer()).status == 200
    third = await served.connect()
    with pytest.raises(ConnectionResetError):
        if await third.rest() == b"":
            raise ConnectionResetError
    first.close()
    await until(lambda: len(served.server._connections) == 1)
    fourth = await served.connect()
    fourth.send(GET)
    assert (await fourth.answer()).status == 200


async def test_incomplete_bodies_over_the_shared_limit_are_rejected(serve: Serve) -> None:
    served = await serve(echo, limits=Limits(buffered_bodies=1500))
    budget = served.server.body_budget
    assert budget is not None
    first, second, third, gone = [await served.connect() for _ in range(4)]
    first.send(HALF)
    await until(lambda: budget.used == 900)
    second.send(HALF)
    assert (await second.answer()).status == 503
    assert await second.rest() == b""
    assert budget.used == 900
    first.send(b"a" * 100)
    assert (await first.answer()).status == 200
    assert budget.used == 0
    gone.send(HALF)
    await until(lambda: budget.used == 900)
    gone.close()
    await until(lambda: budget.used == 0)
    third.send(HALF + b"a" * 100)
    assert (await third.answer()).status == 200
