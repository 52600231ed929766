"""Transports within one process: no sockets, but the server's complete request pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from setpoint.client.transport import (
    Event,
    EventStream,
    Headers,
    ObjectReply,
    Reply,
    StreamReply,
    Unreachable,
    Upgraded,
)

if TYPE_CHECKING:
    from setpoint.wire.message import RawConnection

T = TypeVar("T", covariant=True)


class ResponseChunks(Protocol[T]):
    """A response body that arrives over time, in the chunks the server wrote.

    It is bounded: if the reader falls too far behind, the server ends it, and the reader gets the buffered chunks and
    then the end.
    """

    def __aiter__(self) -> AsyncIterator[T]: ...

    async def __anext__(self) -> T:
        """Return the next chunk. Raise ConnectionError if the server failed midway."""
        ...

    def close(self) -> None: ...


class InProcessAnswer(ObjectReply):
    """A response with exactly one of a body, chunks, a value, events or an upgraded connection."""

    __slots__ = ("chunks", "connection", "events")

    def __init__(
        self,
        status: int,
        headers: Headers,
        body: bytes = b"",
        value: dict[str, Any] | None = None,
        chunks: ResponseChunks[bytes] | None = None,
        events: ResponseChunks[Event] | None = None,
        connection: RawConnection | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.value = value
        self.chunks = chunks
        self.events = events
        self.connection = connection


class InProcessServer(Protocol):
    """The interface that the composition root puts in front of the API server."""

    async def __call__(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> InProcessAnswer:
        """Handle a request as over the wire: the response is a body, chunks, or an upgraded connection."""
        ...

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> InProcessAnswer:
        """Handle a request with objects: the response is a value or events, or a body if it is not an object.

        `value` is neither changed nor retained; None means no body.
        """
        ...


class InProcessTransport:
    """A transport with JSON in between: the returned objects belong to the caller, as over a network."""

    def __init__(self, server: InProcessServer, token: str = "") -> None:
        """Create the transport; `token` authenticates every request, as it would over the network."""
        self._server = server
        self._credentials = [("authorization", f"Bearer {token}")] if token else []

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        answer = await self._server(method, path, query, [*headers, *self._credentials], body)
        if answer.connection is not None:
            answer.connection.close()
        if answer.chunks is None:
            return Reply(answer.status, answer.headers, answer.body)
        stream = _Stream(answer)
        try:
            return Reply(answer.status, answer.headers, b"".join([chunk async for chunk in stream]))
        finally:
            stream.close()

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        return _Stream(await self._server(method, path, query, [*headers, *self._credentials], body))

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        answer = await self._server("GET", path, query, [*headers, *self._credentials], b"")
        if answer.connection is not None:
            return Upgraded(answer.headers, answer.connection)
        body = answer.body if answer.chunks is None else b"".join([chunk async for chunk in _Stream(answer)])
        return Reply(answer.status, answer.headers, body)

    async def close(self) -> None:
        pass


class SharingTransport(InProcessTransport):
    """An ObjectTransport: the returned objects are shared by all users of the process."""

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> ObjectReply:
        if self._credentials:
            headers = [*headers, *self._credentials]
        return await self._server.exchange(method, path, query, headers, value)

    async def follow(self, path: str, query: str, headers: Headers) -> EventStream | ObjectReply:
        answer = await self._server.exchange("GET", path, query, [*headers, *self._credentials], None)
        return answer if answer.events is None else answer.events


class _Stream:
    def __init__(self, answer: InProcessAnswer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._chunks = answer.chunks
        self._body = answer.body

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        if self._chunks is not None:
            try:
                return await self._chunks.__anext__()
            except ConnectionError as error:
                raise Unreachable(f"the stream broke off: {error}") from error
        body, self._body = self._body, b""
        if not body:
            raise StopAsyncIteration
        return body

    def close(self) -> None:
        if self._chunks is not None:
            self._chunks.close()
