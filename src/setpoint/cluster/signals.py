"""Termination of a process by SIGINT and SIGTERM, also while it is still starting."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Literal

_START_TIMEOUT = 3.0
"""Seconds that a start may still take after the first signal, before it is cancelled."""


class StopEvent(asyncio.Event):
    """Set when the process must end. A task that waits for it shuts down in order. Until then the process is starting:
    the start is cancelled if it does not complete soon, or at the second signal."""

    def __init__(self) -> None:
        super().__init__()
        self._starting = asyncio.current_task()
        self._awaited = False

    async def wait(self) -> Literal[True]:
        self._awaited = True
        return await super().wait()

    def request(self) -> None:
        """Handle a signal."""
        is_repeated = self.is_set()
        self.set()
        if is_repeated:
            self._cancel_start()
        else:
            asyncio.get_running_loop().call_later(_START_TIMEOUT, self._cancel_start)

    def _cancel_start(self) -> None:
        if not self._awaited and self._starting is not None:
            self._starting.cancel()


def stop_on_signals() -> StopEvent:
    """Return an event that SIGINT and SIGTERM set. Call it in the task that starts the server, before reporting that it
    is ready."""
    stop = StopEvent()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.request)
    return stop
