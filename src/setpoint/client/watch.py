"""A watch: a stream of changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from setpoint.client.failures import failure_of
from setpoint.client.interface import WatchEvent
from setpoint.client.transport import EventStream, Unreachable


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
