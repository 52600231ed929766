"""A component as a process that can be paused, as by SIGSTOP, while the rest of the cluster and the time go on."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from setpoint.client import Client
from setpoint.client.transport import EventStream, Headers, ObjectReply
from setpoint.meta.clock import Clock


class PausableProcess:
    """Nothing wakes up in it while it is paused: no timer, no answer, no event. What it had sent stays on the wire and
    reaches the server when it is resumed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resumed = asyncio.Event()
        self._resumed.set()

    def pause(self) -> None:
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    async def awake(self) -> None:
        while not self._resumed.is_set():
            await self._resumed.wait()

    # -- its clock ----------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self.awake()

    # -- its connections ----------------------------------------------------------------------------------------------

    def client(self, real: Client) -> Client:
        sender = real.sender
        return Client(_Connection(sender.transport, self), self, user_agent=sender.user_agent)


class _Connection:
    def __init__(self, inner: Any, process: PausableProcess) -> None:
        self._inner = inner
        self._process = process

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> ObjectReply:
        await self._process.awake()
        try:
            found: ObjectReply = await self._inner.exchange(method, path, query, headers, value)
            return found
        finally:
            await self._process.awake()

    async def follow(self, path: str, query: str, headers: Headers) -> EventStream | ObjectReply:
        found = await self._inner.follow(path, query, headers)
        return found if isinstance(found, ObjectReply) else _Events(found, self._process)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Events:
    def __init__(self, inner: EventStream, process: PausableProcess) -> None:
        self._inner = inner
        self._process = process
        self.close = inner.close

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> Any:
        found = await self._inner.__anext__()
        await self._process.awake()
        return found
