"""Background loops that a test starts and that end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class RunningLoops:
    """Start loops and stop them at the end of the test; a loop that ended by itself fails the test."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, loop: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(loop))

    async def stop(self) -> None:
        for task in self._tasks:
            assert not task.done(), task
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
