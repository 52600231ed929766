"""The blocking transport for tests that serve on an event loop: each call runs in a thread, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from setpoint.cli.main import run_blocking
from setpoint.client.blocking import BlockingTransport
from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access
from setpoint.client.transport import Headers, Reply, StreamReply, Transport
from setpoint.system import BlockingClock, SystemClock

Make = Callable[..., Transport]


def on_event_loop(access: Access, **options: float) -> Transport:
    return HttpsTransport(access, SystemClock(), **options)  # type: ignore[arg-type]


def in_thread(access: Access, **options: float) -> Transport:
    clock = BlockingClock()
    return InThread(BlockingTransport(access, clock, clock.limits, **options))


TRANSPORTS: dict[str, Make] = {"event loop": on_event_loop, "blocking": in_thread}
"""What makes each kind of transport for an access; they must behave alike."""


class InThread:
    def __init__(self, inner: BlockingTransport) -> None:
        self._inner = inner

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        return await asyncio.to_thread(run_blocking, self._inner.request(method, path, query, headers, body))

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        return _Stream(await asyncio.to_thread(run_blocking, self._inner.stream(method, path, query, headers, body)))

    async def close(self) -> None:
        run_blocking(self._inner.close())


class _Stream:
    def __init__(self, inner: StreamReply) -> None:
        self._inner = inner
        self.status, self.headers, self.close = inner.status, inner.headers, inner.close

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        chunk = await asyncio.to_thread(run_blocking, _next(self._inner))
        if chunk is None:
            raise StopAsyncIteration
        return chunk


async def _next(stream: StreamReply) -> bytes | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:  # no future can hold it
        return None
