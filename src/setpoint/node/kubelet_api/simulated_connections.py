"""Connections to servers in simulated containers, which implement HTTP/1.1 only.

A server that listens but whose responses are not simulated accepts the connection and closes it when the first bytes
arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.node.runtime.network import ConnectionFailure, PodRequest, PodResponse
from setpoint.wire.encoding import CONTINUE, DateHeader, bodyless, head, header_lines, status_line
from setpoint.wire.limits import Limits
from setpoint.wire.message import Peer, RawConnection, Request
from setpoint.wire.request_parser import SLICE, ReceivedRequest, RequestParser

_LIMITS: Final = Limits(head=64 * 1024, body=4 * 1024 * 1024)

Deliver = Callable[[PodRequest], PodResponse | ConnectionFailure]


class ForwardedConnection:
    """Parses the requests of one connection and writes the responses of the Pod's server."""

    def __init__(self, port: int, deliver: Deliver, clock: Clock, client: RawConnection) -> None:
        self._port = port
        self._deliver = deliver
        self._clock = clock
        self._client = client
        self._write = client.write
        self._date = DateHeader(clock)

    async def run(self) -> str:
        """Respond to requests until either side closes the connection. Return the error that broke it; empty if there
        was none."""
        parser = RequestParser(_LIMITS, Peer())
        try:
            while chunk := await self._client.read():
                for start in range(0, len(chunk), SLICE):
                    parser.feed(chunk[start : start + SLICE])
                    error = await self._respond_to_all(parser)
                    if error or parser.finished:
                        return error
            return ""
        finally:
            parser.release()

    async def _respond_to_all(self, parser: RequestParser) -> str:
        """Respond to the requests that are complete. Return the error that broke the connection; empty if there was
        none."""
        while parser.ready:
            received = parser.ready.pop(0)
            if received.failure is not None:
                status, text = received.failure
                self._write_response(PodResponse(status, text or _phrase(status)), closing=True)
                continue
            assert received.request is not None
            error = await self._respond(received.request, received)
            if error:
                return error
            if received.upgrade:  # simulated servers accept no other protocol
                parser.feed(parser.resume())
        if parser.wants_continue:
            parser.wants_continue = False
            self._write(CONTINUE)
        return ""

    async def _respond(self, request: Request, received: ReceivedRequest) -> str:
        target = PodRequest(self._port, request.path or "/", request.query, request.method, body=request.body)
        response = self._deliver(target)
        if isinstance(response, ConnectionFailure):
            return f"read tcp4 127.0.0.1:{self._port}: read: {response.value.lower()}"
        if response.delay:
            await self._clock.sleep(response.delay)
        self._write_response(
            response, closing=received.is_last, http10=received.http10, without_body=request.method == "HEAD"
        )
        return ""

    def _write_response(
        self, response: PodResponse, *, closing: bool, http10: bool = False, without_body: bool = False
    ) -> None:
        body = response.body.encode("utf-8", "surrogateescape")
        length = "" if bodyless(response.status) else f"Content-Length: {len(body)}\r\n"
        connection = "Connection: close\r\n" if closing else "Connection: keep-alive\r\n" if http10 else ""
        date = self._date.line(self._clock.monotonic())
        content_type = header_lines([("Content-Type", response.content_type)])
        self._write(
            head(response.status, content_type, date, length, connection)
            + (body if length and not without_body else b"")
        )


def _phrase(status: int) -> str:
    return status_line(status).rstrip().split(" ", 2)[2]
