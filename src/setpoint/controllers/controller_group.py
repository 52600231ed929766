"""A controller that consists of several runnables."""

from __future__ import annotations

import asyncio

from setpoint.reconcile.manager import Runnable


class ControllerGroup:
    """Runs several runnables concurrently as one."""

    def __init__(self, *parts: Runnable) -> None:
        self.parts = parts

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for part in self.parts:
                tasks.create_task(part.run())
