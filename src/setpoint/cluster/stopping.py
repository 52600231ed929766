"""How a process is told to end, also while it is still on its way up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Literal

_PATIENCE = 3.0
"""So long a start that is to be given up may still take to come to its end."""


class Stop(asyncio.Event):
    """Set when the process is to end. Whoever waits for it then ends in order. Until somebody waits, the process is
    still starting: what does not come up soon, or is told to end once more, is broken off."""

    def __init__(self) -> None:
        super().__init__()
        self._starting = asyncio.current_task()
        self._awaited = False

    async def wait(self) -> Literal[True]:
        self._awaited = True
        return await super().wait()

    def ask(self) -> None:
        again = self.is_set()
        self.set()
        if again:
            self._break_off()
        else:
            asyncio.get_running_loop().call_later(_PATIENCE, self._break_off)

    def _break_off(self) -> None:
        if not self._awaited and self._starting is not None:
            self._starting.cancel()


def catch_signals() -> Stop:
    """Set by SIGINT and SIGTERM from now on. To be called before anybody is told that the server is ready, in the task
    that starts it."""
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop.ask)
    return stop
