"""The server: owns the connections' tasks, sweeps deadlines, stops gracefully."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from ssl import SSLContext
from typing import Any, Final

from setpoint.apiserver.http.accepting import Acceptor, listen
from setpoint.apiserver.http.connection import Connection, OnError
from setpoint.apiserver.http.encoding import DateHeader, plain_error
from setpoint.apiserver.http.limits import Limits
from setpoint.apiserver.http.message import Handler, Request, Response
from setpoint.apiserver.turns import Turns
from setpoint.meta.clock import Clock

logger = logging.getLogger(__name__)

# What a cancelled handler may still take to clean up.
ABORT_TIMEOUT: Final = 5.0


class Server:
    """Serves `handler` until `stop`.

    `on_error(request, status, text)` words what the wire itself has to answer: 500 for a handler that failed and 413
    for a body over the limit, with the request (its body empty); anything that never became a request (400, 405, 408,
    417, 431, 501, 505) with None. The default answers in plain text. `turns` are those of the loop, if others keep them
    short as well.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        clock: Clock,
        limits: Limits | None = None,
        turns: Turns | None = None,
        ssl: SSLContext | None = None,
        on_error: OnError = plain_error,
    ) -> None:
        self.handler = handler
        self.clock = clock
        self.limits = limits or Limits()
        self.turns = turns or Turns(clock)
        self.date = DateHeader(clock)
        self.stopping = False
        self._ssl = ssl
        self._on_error = on_error
        self._acceptor: Acceptor | None = None
        self._connections: set[Connection] = set()
        # Every task started here is in this set until it is done, and `stop` waits for all of them.
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address, with the port that was chosen when `port` is 0."""
        listeners = await listen(host, port)
        address = listeners[0].getsockname()
        self._acceptor = Acceptor(listeners, self.connection, self._ssl, self.limits)
        return address[0], address[1]

    async def stop(self, grace: float) -> None:
        """Requests in flight may end within `grace` seconds; after that, what is left is cut off. When this returns, no
        handler runs any more."""
        self.stopping = True
        if self._acceptor is not None:
            await self._acceptor.close()
        for connection in list(self._connections):
            connection.shut_down()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for connection in list(self._connections):
            connection.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, stuck = await asyncio.wait(self._tasks, timeout=ABORT_TIMEOUT)
            if stuck:
                logger.error("%d handlers ignore that they are cancelled", len(stuck))
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def connection(self) -> Connection:
        """A protocol for one more connection, from wherever it comes."""
        return Connection(self, asyncio.get_running_loop())

    # What connections call.

    def opened(self, connection: Connection, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._connections.add(connection)
        if self._sweeper is None:
            self._sweeper = connection.loop.call_later(self.limits.tick, self._sweep, connection.loop)
        task = connection.loop.create_task(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def answer_for(self, request: Request | None, status: int, text: str) -> Response:
        try:
            answer = self._on_error(request, status, text)
            if isinstance(answer, Response):
                return answer
            logger.error("the answer to an error must be a Response, not %s", type(answer).__name__)
        except Exception:
            logger.exception("wording an error failed")
        return plain_error(request, status, text)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock.monotonic()
        for connection in [c for c in self._connections if c.deadline <= now]:
            connection.expire()
        self._sweeper = loop.call_later(self.limits.tick, self._sweep, loop) if self._connections else None
