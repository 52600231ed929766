"""Watches: streams of changes, and their form on the wire, one JSON document per line."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import orjson

from setpoint.client.failures import failure, failure_of
from setpoint.client.interface import WatchEvent
from setpoint.client.transport import Event, EventStream, Reply, StreamReply, Unreachable

_MAX_LINE = 64 * 1024 * 1024
_MAX_ERROR = 1024 * 1024


class EventLines:
    """An EventStream over newline-delimited JSON."""

    def __init__(self, stream: StreamReply) -> None:
        self._stream = stream
        self._lines: deque[bytes] = deque()
        self._partial_line = b""
        """The buffered beginning of an incomplete line."""

    async def __anext__(self) -> Event:
        while not self._lines:
            self._append(await self._stream.__anext__())
        try:
            event = orjson.loads(self._lines.popleft())
            return event["type"], event["object"]
        except (ValueError, LookupError, TypeError):
            raise Unreachable("the server sent something that is not a watch event") from None

    def close(self) -> None:
        self._lines.clear()
        self._stream.close()

    def _append(self, chunk: bytes) -> None:
        if self._partial_line:
            chunk = self._partial_line + chunk
        lines = chunk.split(b"\n")
        self._partial_line = lines.pop()
        if len(self._partial_line) > _MAX_LINE:
            raise Unreachable("the server sent a watch event that is too long to be one")
        self._lines.extend(lines)


async def event_lines(stream: StreamReply) -> EventLines:
    """Return the events of a stream, or raise the error that the server answered with instead."""
    if stream.status == 200:
        return EventLines(stream)
    try:
        body = b""
        async for chunk in stream:
            body += chunk
            if len(body) > _MAX_ERROR:
                break
    finally:
        stream.close()
    raise failure(Reply(stream.status, stream.headers, body))


class Watch:
    """An iterator of watch events, which connects on the first event or on `async with`.

    It ends with StopAsyncIteration when the server ends it, with Unreachable when the connection is lost, and with
    Expired when the revision was compacted. After the first two, continue from `resource_version`; after Expired, list
    again. Close it before its end with `async with` or `close`; garbage collection closes it too.
    """

    def __init__(self, start: Callable[[], Awaitable[EventStream]], resource_version: str = "") -> None:
        self._start: Callable[[], Awaitable[EventStream]] | None = start
        self._stream: EventStream | None = None
        self.resource_version = resource_version
        """The resource version of the last yielded event; no event up to here is missing."""

    def __aiter__(self) -> Watch:
        return self

    async def __aenter__(self) -> Watch:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._start = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __del__(self) -> None:
        if self._stream is not None:
            self._stream.close()

    async def __anext__(self) -> WatchEvent:
        try:
            stream = self._stream or await self._begin()
            kind, obj = await stream.__anext__()
            if kind == "ERROR":
                raise failure_of(obj)
            try:
                self.resource_version = obj["metadata"]["resourceVersion"]
            except (LookupError, TypeError):
                raise Unreachable("the server sent something that is not a watch event") from None
        except BaseException as error:
            self.close()
            if isinstance(error, ConnectionError) and not isinstance(error, Unreachable):
                raise Unreachable(f"the stream broke off: {error}") from error
            raise
        return WatchEvent(kind, obj)

    async def _begin(self) -> EventStream:
        if self._stream is not None:
            return self._stream
        if self._start is None:
            raise StopAsyncIteration
        start, self._start = self._start, None
        stream = self._stream = await start()
        return stream
