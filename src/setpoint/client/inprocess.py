"""The transport within one process: no sockets, but the whole of the server's pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from setpoint.client.transport import Headers, Reply, StreamReply, Unreachable


class Chunks(Protocol):
    """The body of an answer that comes over time, piece by piece as the server wrote it. Bounded: when its reader falls
    too far behind the server ends it, and the reader sees what came before the end, then the end."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes:
        """Raises ConnectionError if the server failed midway."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class InProcessAnswer:
    status: int
    headers: Headers
    body: bytes = b""
    chunks: Chunks | None = None
    """Instead of `body`."""


class InProcessServer(Protocol):
    """What the composition root puts in front of the API server."""

    async def __call__(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> InProcessAnswer: ...


class InProcessTransport:
    def __init__(self, server: InProcessServer, token: str = "") -> None:
        """`token` authenticates every request, as it would over the wire."""
        self._server = server
        self._credentials = [("authorization", f"Bearer {token}")] if token else []

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        answer = await self._server(method, path, query, [*headers, *self._credentials], body)
        if answer.chunks is None:
            return Reply(answer.status, answer.headers, answer.body)
        stream = _Stream(answer)
        try:
            return Reply(answer.status, answer.headers, b"".join([chunk async for chunk in stream]))
        finally:
            stream.close()

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        return _Stream(await self._server(method, path, query, [*headers, *self._credentials], body))

    async def close(self) -> None:
        pass


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
