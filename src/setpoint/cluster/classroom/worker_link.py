"""The front's connection to a worker, over its Unix socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson

from setpoint.client.failures import failure
from setpoint.client.transport import Reply
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ServiceUnavailable
from setpoint.tasks import within
from setpoint.wire.client_connection import ClientConnection
from setpoint.wire.forwarding import send, streamed_response, upgrade_response, whole_response
from setpoint.wire.message import Answer, Peer, Request

_TIMEOUT: Final = 30.0
"""Seconds until the head of a response must have arrived; a cluster may have to start first."""
_MAX_BODY: Final = 4 << 20
_HOST: Final = "class"


class WorkerLink:
    """Sends requests to one worker."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def forward(self, request: Request) -> Answer:
        """Pass a request on, and return its response, which may be a stream or an upgrade. Raises
        ServiceUnavailable."""
        connection = await self._connect()
        try:
            exchange = send(connection, request, request.headers.get("host", _HOST))
            await within(self._clock, _TIMEOUT, connection.head(exchange))
            if exchange.status == 101:
                return upgrade_response(connection, exchange)
            if exchange.offers_upgrade or not exchange.has_body:
                response = await within(self._clock, _TIMEOUT, whole_response(connection, exchange, _MAX_BODY))
                connection.close()
                return response
        except (OSError, TimeoutError):
            connection.abort()
            raise _lost() from None
        except BaseException:
            connection.abort()
            raise
        return streamed_response(connection, exchange)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request of the front itself, and return the value of its response. Raises ApiError."""
        data = b"" if body is None else orjson.dumps(body)
        request = Request(method, path, "", {"content-type": "application/json"}, data, Peer())
        connection = await self._connect()
        try:
            exchange = send(connection, request, _HOST)
            await within(self._clock, _TIMEOUT, connection.head(exchange))
            response = await within(self._clock, _TIMEOUT, whole_response(connection, exchange, _MAX_BODY))
        except (OSError, TimeoutError):
            raise _lost() from None
        finally:
            connection.abort()
        content = response.whole_body
        if response.status >= 400:
            raise failure(Reply(response.status, response.headers, content))
        return orjson.loads(content) if content else None

    async def _connect(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_unix_connection(ClientConnection, str(self._path))
        except OSError:
            raise _lost() from None
        return connection


def _lost() -> ServiceUnavailable:
    return ServiceUnavailable("this part of the class does not answer; try again", details={"retryAfterSeconds": 1})
