"""A conversation of the page whose other side is a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson


class TestConversation:
    """What the server sends is kept in order; `say` is what the tab sends."""

    __test__ = False

    def __init__(self) -> None:
        self.sent: list[Any] = []
        """JSON values, decoded, and bytes."""
        self._said: asyncio.Queue[Any] = asyncio.Queue()
        self._more = asyncio.Event()
        self.credit: asyncio.Event = asyncio.Event()
        """While this is cleared, the tab grants no credit."""
        self.credit.set()

    def say(self, data: Any) -> None:
        self._said.put_nowait(data)

    async def send(self, data: Any) -> None:
        await self.credit.wait()
        self.sent.append(orjson.loads(orjson.dumps(data)))
        self._more.set()

    async def send_bytes(self, data: bytes) -> None:
        await self.credit.wait()
        self.sent.append(data)
        self._more.set()

    async def receive(self) -> Any:
        return await self._said.get()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, which is asked again after each message."""
        while not holds():
            self._more.clear()
            await self._more.wait()
