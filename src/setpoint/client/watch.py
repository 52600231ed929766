"""A watch: the lines of a stream, as events."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import orjson

from setpoint.client.failures import failure, failure_of
from setpoint.client.interface import WatchEvent
from setpoint.client.transport import Reply, StreamReply, Unreachable

_LONGEST_LINE = 64 * 1024 * 1024
_LONGEST_REFUSAL = 1024 * 1024


class Watch:
    """Begins with the first event that is asked for, or with `async with`. Ends with StopAsyncIteration when the server
    ends it, with Unreachable when the connection broke, with Expired when the revision asked for is gone; all the same
    to one who goes on from `resource_version`, but for the last, who must list again.

    Whoever stops before the end closes it: by `async with`, by `close`, or by letting go of it."""

    def __init__(self, start: Callable[[], Awaitable[StreamReply]], resource_version: str = "") -> None:
        self._start: Callable[[], Awaitable[StreamReply]] | None = start
        self._stream: StreamReply | None = None
        self._lines: deque[bytes] = deque()
        self._rest = b""
        """The beginning of a line whose end is still to come."""
        self.resource_version = resource_version
        """Of the last event given out: nothing up to here is missing."""

    def __aiter__(self) -> Watch:
        return self

    async def __aenter__(self) -> Watch:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._start = None
        self._lines.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def __del__(self) -> None:
        if self._stream is not None:
            self._stream.close()

    async def __anext__(self) -> WatchEvent:
        try:
            while not self._lines:
                stream = self._stream or await self._begin()
                self._take(await stream.__anext__())
            return self._event(self._lines.popleft())
        except BaseException:
            self.close()
            raise

    async def _begin(self) -> StreamReply:
        if self._stream is not None:
            return self._stream
        if self._start is None:
            raise StopAsyncIteration
        start, self._start = self._start, None
        stream = await start()
        if stream.status != 200:
            raise failure(await _refusal(stream))
        self._stream = stream
        return stream

    def _take(self, chunk: bytes) -> None:
        if self._rest:
            chunk = self._rest + chunk
        lines = chunk.split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _LONGEST_LINE:
            raise Unreachable("the server sent a watch event that is too long to be one")
        self._lines.extend(lines)

    def _event(self, line: bytes) -> WatchEvent:
        try:
            event = orjson.loads(line)
            kind, obj = event["type"], event["object"]
        except (ValueError, LookupError, TypeError):
            raise Unreachable("the server sent something that is not a watch event") from None
        if kind == "ERROR":
            raise failure_of(obj)
        self.resource_version = obj["metadata"]["resourceVersion"]
        return WatchEvent(kind, obj)


async def _refusal(stream: StreamReply) -> Reply:
    try:
        body = b""
        async for chunk in stream:
            body += chunk
            if len(body) > _LONGEST_REFUSAL:
                break
        return Reply(stream.status, stream.headers, body)
    finally:
        stream.close()
