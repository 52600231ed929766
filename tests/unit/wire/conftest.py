from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop
from http_harness import Attach, LoopClock, MemoryTransport, Serve, Served
from stopped_clock import StoppedClock

from setpoint.testing.virtual_time import VirtualLoop
from setpoint.wire.loop_slices import LoopSlicer
from setpoint.wire.message import Handler
from setpoint.wire.server import Server


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], Any]]:
    if item.get_closest_marker("virtual_loop") is not None:
        return {"asyncio": VirtualLoop}
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    running: list[Served] = []

    async def start(handler: Handler, **options: Any) -> Served:
        server = Server(handler, clock=LoopClock(), **options)
        served = Served(server, await server.start("127.0.0.1", 0))
        running.append(served)
        return served

    async with asyncio.timeout(20):
        yield start
        for served in running:
            await served.server.stop(0)
            for client in served.clients:
                client.close()


@pytest.fixture
async def attach() -> AsyncIterator[Attach]:
    """Connect without a socket. No turn of the loop is ever long."""
    servers: list[Server] = []

    def connect(handler: Handler, peername: tuple[str, int] | None = None, **options: Any) -> MemoryTransport:
        server = Server(handler, clock=LoopClock(), slicer=LoopSlicer(StoppedClock()), **options)
        servers.append(server)
        return MemoryTransport(server.connection(), peername=peername)

    yield connect
    for server in servers:
        with contextlib.suppress(TimeoutError):
            await server.stop(0)
