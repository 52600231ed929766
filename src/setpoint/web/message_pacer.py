"""Admits the messages of tabs to the event loop: of each session one in several iterations.

Thousands of messages may have arrived at once. Their sender delays others by the work of a few messages only: a
request takes about ten iterations, and each message takes a fraction of its work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

_ITERATIONS: Final = 8
"""The number of iterations of the event loop in which a session has one message."""

_Queue = deque[asyncio.Future[None]]


class MessagePacer:
    """The messages of one page server. Each tab waits with one message at a time, so as many wait as there are tabs."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Queue] = {}
        """The messages that wait, by session. A session is there for some iterations after its latest message, if only
        with an empty queue."""

    @property
    def is_busy(self) -> bool:
        """Whether a message was admitted lately, or waits."""
        return bool(self._waiting)

    async def take(self, session: str) -> None:
        """Return when the message of a tab of this session may be handled."""
        queue = self._waiting.get(session)
        if queue is None:
            self._waiting[session] = deque()
            self._later(session, _ITERATIONS)
            return
        admitted = asyncio.get_running_loop().create_future()
        queue.append(admitted)
        await admitted

    def _later(self, session: str, iterations: int) -> None:
        asyncio.get_running_loop().call_soon(self._next, session, iterations - 1)

    def _next(self, session: str, iterations: int) -> None:
        """Admit the next message of a session after so many more iterations."""
        if iterations:
            self._later(session, iterations)
            return
        queue = self._waiting[session]
        while queue:
            admitted = queue.popleft()
            if not admitted.done():  # its tab may be gone
                admitted.set_result(None)
                self._later(session, _ITERATIONS)
                return
        del self._waiting[session]
