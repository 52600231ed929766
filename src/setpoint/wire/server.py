"""The HTTP server: owns the tasks of connections, checks deadlines, and stops gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Coroutine
from ssl import SSLContext
from typing import Any

from setpoint.meta.clock import Clock
from setpoint.tasks import TaskRegistry
from setpoint.wire.encoding import DateHeader, plain_error
from setpoint.wire.limits import Limits
from setpoint.wire.listener import Listener, listen
from setpoint.wire.loop_slices import LoopSlicer
from setpoint.wire.message import Handler, Request, Response
from setpoint.wire.request_parser import BodyBudget
from setpoint.wire.server_connection import OnError, ServerConnection

logger = logging.getLogger(__name__)


class Server:
    """Serves `handler` until `stop`.

    `on_error(request, status, text)` returns the answer where the server itself has to answer: 500 for a handler that
    failed and 413 for a body over the limit, with the request (its body empty); anything that never became a request
    (400, 405, 408, 417, 431, 501, 503, 505) with None. The default answers in plain text. `slicer` divides the work of
    the loop; a server shares it with the other users of the loop.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        clock: Clock,
        limits: Limits | None = None,
        slicer: LoopSlicer | None = None,
        ssl: SSLContext | None = None,
        on_error: OnError = plain_error,
    ) -> None:
        self.handler = handler
        self.clock = clock
        self.limits = limits or Limits()
        self.slicer = slicer or LoopSlicer(clock)
        self.date = DateHeader(clock)
        self.body_budget = BodyBudget(self.limits.buffered_bodies) if self.limits.buffered_bodies else None
        self.draining = False
        """Whether every response ends its connection, so that clients connect to another server."""
        self.stopping = False
        self._ssl = ssl
        self._on_error = on_error
        self._listener: Listener | None = None
        self._connections: set[ServerConnection] = set()
        self._tasks = TaskRegistry()
        self._deadline_timer: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and return the address, with the port that was assigned if `port` is 0. Raise OSError."""
        sockets = await listen(host, port)
        address = sockets[0].getsockname()
        self.serve(sockets)
        return address[0], address[1]

    def serve(self, sockets: list[socket.socket]) -> None:
        """Accept connections of sockets that listen already. The server closes them."""
        self._listener = Listener(sockets, self.connection, self._ssl, self.limits)

    def drain(self) -> None:
        """Send `Connection: close` with every response from now on. Connections are still accepted, and streams
        continue."""
        self.draining = True

    async def stop(self, grace: float) -> None:
        """Let requests in flight end within `grace` seconds, then abort the others. When this returns, no handler runs
        any more."""
        self.draining = self.stopping = True
        if self._listener is not None:
            await self._listener.close()
        for connection in list(self._connections):
            connection.shut_down()
        await self._tasks.wait(grace)
        for connection in list(self._connections):
            connection.cancel()
        await self._tasks.stop()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
            self._deadline_timer = None

    def connection(self) -> ServerConnection:
        """Return a protocol for one more connection, of any transport."""
        return ServerConnection(self, asyncio.get_running_loop())

    # Called by connections.

    def opened(self, connection: ServerConnection, run: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._connections.add(connection)
        if 0 < self.limits.connections < len(self._connections):
            connection.loop.call_soon(connection.abort)
        if self._deadline_timer is None:
            self._deadline_timer = connection.loop.call_later(self.limits.tick, self._check_deadlines, connection.loop)
        return self._tasks.start(run)

    def closed(self, connection: ServerConnection) -> None:
        self._connections.discard(connection)

    def answer_for(self, request: Request | None, status: int, text: str) -> Response:
        try:
            answer = self._on_error(request, status, text)
            if isinstance(answer, Response):
                return answer
            logger.error("on_error must return a Response, not %s", type(answer).__name__)
        except Exception:
            logger.exception("on_error failed")
        return plain_error(request, status, text)

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self.clock.monotonic()
        for connection in [c for c in self._connections if c.deadline <= now]:
            connection.expire()
        self._deadline_timer = None
        if self._connections:
            self._deadline_timer = loop.call_later(self.limits.tick, self._check_deadlines, loop)
