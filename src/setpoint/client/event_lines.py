"""Decode a watch from the wire: one JSON document per line."""

from __future__ import annotations

from collections import deque

import orjson

from setpoint.client.failures import failure
from setpoint.client.transport import Event, Reply, StreamReply, Unreachable

_LONGEST_LINE = 64 * 1024 * 1024
_LONGEST_REFUSAL = 1024 * 1024


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
        if len(self._partial_line) > _LONGEST_LINE:
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
            if len(body) > _LONGEST_REFUSAL:
                break
    finally:
        stream.close()
    raise failure(Reply(stream.status, stream.headers, body))
