"""What passes between the API server and its callers: requests, answers, streams. No sockets in here.

Callers are the wire, and components of the server's own process. Those pass objects where the wire has bytes, and
nothing else is different for them. What they bring is read and copied, never changed or kept; what they get is shared
with the watch cache and every other reader: nobody changes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import orjson


@dataclass(slots=True)
class Peer:
    """Who is on the other end of the connection; one object per connection, so it can key caches."""

    address: str = ""
    port: int = 0
    certificate: bytes | None = None
    """The client's verified certificate, DER; None without one."""
    attributes: dict[object, object] = field(default_factory=dict)
    """What filters learnt about this connection once and want to keep (such as the user of its certificate)."""
    intermediates: Callable[[], Sequence[bytes]] = tuple
    """The other certificates that the client has shown, DER: of those between it and an authority."""


@dataclass(slots=True)
class Request:
    method: str
    path: str
    """As sent, still percent-encoded, without the query."""
    query: str
    """As sent, without the question mark."""
    headers: dict[str, str]
    """Lower-case names; a header sent several times is joined by `, ` except for those in `repeated`."""
    body: bytes
    peer: Peer
    repeated: dict[str, list[str]] = field(default_factory=dict)
    """Every value of the headers that were sent more than once."""


@dataclass(slots=True)
class Response:
    status: int
    body: bytes | Sequence[bytes] = b""
    """A sequence is written piece by piece, without joining."""
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def whole_body(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else b"".join(self.body)


class StreamWriter(Protocol):
    """The open end of a streamed answer. Writes never wait: the stream's owner looks at `buffered` and gives up on a
    reader who does not read."""

    def write(self, data: bytes) -> None:
        """Send `data` as one chunk."""
        ...

    def write_frames(self, frames: bytes) -> None:
        """Send bytes that already are chunks (see `frame`): made once, shared by a thousand streams."""
        ...

    @property
    def buffered(self) -> int:
        """Bytes accepted that wait for the client to read, or nearly so."""
        ...

    async def drained(self) -> None:
        """Returns when little is buffered, and others had their turn."""
        ...

    async def closed(self) -> None:
        """Returns when the peer is gone or the server is shutting down: time to end."""
        ...


def frame(data: bytes) -> bytes:
    """`data` as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class StreamResponse:
    """An answer whose body is written over time. `run` is cancelled when the peer goes away."""

    status: int
    headers: list[tuple[str, str]]
    run: Callable[[StreamWriter], Awaitable[None]]


class RawConnection(Protocol):
    """A hijacked connection after `101 Switching Protocols`."""

    def write(self, data: bytes) -> None: ...

    async def read(self) -> bytes:
        """Some bytes, or b"" at the end."""
        ...

    async def drained(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class UpgradeResponse:
    """101 and then the connection belongs to `run` until it returns; then it is closed, never reused."""

    headers: list[tuple[str, str]]
    run: Callable[[RawConnection], Awaitable[None]]


# -- within the process -----------------------------------------------------------------------------------------------


class ObjectRequest(Request):
    """A request that brings a value instead of a body, and takes one for an answer. Whoever needs the body as text,
    to quote it or because it is of a kind that is read as text, gets it made."""

    __slots__ = ("_text", "value")

    def __init__(self, method: str, path: str, query: str, headers: dict[str, str], value: Any, peer: Peer) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.peer = peer
        self.repeated = {}
        self.value = value
        """None: no body."""
        self._text: bytes | None = None

    @property
    def body(self) -> bytes:  # type: ignore[override]
        if self._text is None:
            self._text = b"" if self.value is None else orjson.dumps(self.value)
        return self._text

    def as_sent(self) -> Request:
        """The same request as it would come over the wire."""
        return Request(self.method, self.path, self.query, self.headers, self.body, self.peer, self.repeated)


@dataclass(slots=True)
class ObjectResponse:
    """The answer to an ObjectRequest, where it is an object; else it is one of the others."""

    status: int
    value: dict[str, Any]
    headers: list[tuple[str, str]] = field(default_factory=list)
    """Only those that a client acts upon."""


class EventWriter(StreamWriter, Protocol):
    """The open end of a watch that was asked for by an ObjectRequest."""

    def event(self, kind: str, obj: dict[str, Any], size: int) -> None:
        """`size` is what counts as buffered until the reader has taken it."""
        ...


def takes_events(writer: StreamWriter) -> TypeGuard[EventWriter]:
    # Asking a Protocol takes longer than all else that opening a watch does.
    return hasattr(writer, "event")


Answer = Response | StreamResponse | UpgradeResponse | ObjectResponse
Handler = Callable[[Request], Awaitable[Answer]]
