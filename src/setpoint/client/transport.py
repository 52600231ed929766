"""The interface that carries requests to an API server, over a network or within the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from setpoint.wire.message import RawConnection

Headers = Sequence[tuple[str, str]]
"""Header names in lower case with their values, in the order sent; a name may occur several times."""

# The classes of this module are not dataclasses, which take longer to create than most requests of a command.


class Unreachable(ConnectionError):
    """The server could not be reached, or the connection was lost before the response was complete: the outcome is
    unknown.

    The message is one sentence for users.
    """


def header(headers: Headers, name: str) -> str:
    """Return the first value of a header, or an empty string."""
    for key, value in headers:
        if key == name:
            return value
    return ""


class Reply:
    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Upgraded:
    """A connection that the server has switched to another protocol."""

    def __init__(self, headers: Headers, connection: RawConnection) -> None:
        self.headers = headers
        """The headers of the response, names in lower case."""
        self.connection = connection


class StreamReply(Protocol):
    """A response whose body arrives over time.

    Iterating yields its chunks, in order, until the server ends it; it raises Unreachable if the connection is lost.
    """

    status: int
    headers: Headers

    def __aiter__(self) -> StreamReply: ...

    async def __anext__(self) -> bytes: ...

    def close(self) -> None:
        """Close the stream and free its resources, immediately and idempotently."""
        ...


class ObjectReply:
    __slots__ = ("body", "headers", "status", "value")

    def __init__(self, status: int, headers: Headers, value: dict[str, Any] | None, body: bytes = b"") -> None:
        self.status = status
        self.headers = headers
        self.value = value
        """The object, which is shared and must not be changed; None means that the response is not an object and is in
        `body`."""
        self.body = body


Event = tuple[str, dict[str, Any]]
"""Type and object of a watch event."""


class EventStream(Protocol):
    async def __anext__(self) -> Event:
        """Return the next event in order. Raise StopAsyncIteration at the end, and ConnectionError if the stream is
        broken."""
        ...

    def close(self) -> None:
        """Close the stream and free its resources, immediately and idempotently."""
        ...


class Transport(Protocol):
    """Sends requests. Both calls raise Unreachable and can be cancelled at any time."""

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        """Send a request; `path` is percent-encoded, and `query` has no question mark."""
        ...

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        """Return when the head of the response has arrived. The caller closes the result."""
        ...

    async def close(self) -> None: ...


class ObjectTransport(Transport, Protocol):
    """A transport within the process that accepts objects without encoding, and returns shared objects."""

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> ObjectReply:
        """Send a request with an object. `value` is neither changed nor retained; None means no body."""
        ...

    async def follow(self, path: str, query: str, headers: Headers) -> EventStream | ObjectReply:
        """Return a watch, or the server's refusal."""
        ...


def takes_objects(transport: Transport) -> TypeGuard[ObjectTransport]:
    # Cached, because every component has its own clients and a Protocol check is slow.
    return hasattr(transport, "exchange")


@runtime_checkable
class UpgradingTransport(Transport, Protocol):
    """A transport whose connections can be upgraded to another protocol."""

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        """Upgrade a connection. Raise Unreachable."""
        ...
