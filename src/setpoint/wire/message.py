"""Requests and answers, without I/O.

A server's handler is called for requests from the network, and by components of its own process. Those pass objects
instead of bytes, and nothing else is different for them. The handler reads and copies such objects, and never changes
or retains them; the objects that it returns are shared with every other reader and must not be changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard

import orjson


@dataclass(slots=True)
class Peer:
    """The other end of a connection. There is one object per connection, so that it can be the key of caches."""

    address: str = ""
    port: int = 0
    certificate: bytes | None = None
    """The client's verified certificate, DER; None if it sent none."""
    attributes: dict[object, object] = field(default_factory=dict)
    """Values that handlers have computed once for this connection, such as the user of its certificate."""
    intermediates: Callable[[], Sequence[bytes]] = tuple
    """Returns the intermediate certificates that the client has sent, DER."""
    remote: str = ""
    """The address in its shortest form if the connection comes over a network; empty for one from this machine's
    loopback interface, and for one within the process."""


@dataclass(slots=True)
class Request:
    method: str
    path: str
    """The path as sent: percent-encoded, without the query."""
    query: str
    """The query as sent, without the question mark."""
    headers: dict[str, str]
    """Values by lower-case name; the values of a header that was sent several times are joined by `, `."""
    body: bytes
    peer: Peer
    repeated: dict[str, list[str]] = field(default_factory=dict)
    """All values of the headers that were sent more than once, by lower-case name."""

    def header_values(self, name: str) -> Sequence[str]:
        """Return all values of a header, given its lower-case name."""
        if name in self.repeated:
            return self.repeated[name]
        return [self.headers[name]] if name in self.headers else []


class SizedBody(Sequence[bytes]):
    """A body whose pieces are made when they are sent, and whose size is known before."""

    __slots__ = ("size",)
    size: int
    """Bytes of all pieces together."""


@dataclass(slots=True)
class Response:
    status: int
    body: bytes | Sequence[bytes] = b""
    """The body; a sequence is written piece by piece, without joining."""
    headers: list[tuple[str, str]] = field(default_factory=list)

    @property
    def whole_body(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else b"".join(self.body)


class StreamWriter(Protocol):
    """The writing end of a streamed answer. Writes never wait: the owner of the stream checks `buffered`, and closes
    the stream if the client does not read."""

    def write(self, data: bytes) -> None:
        """Send `data` as one chunk."""
        ...

    def write_chunks(self, chunks: bytes) -> None:
        """Send bytes that are encoded chunks already (see `encode_chunk`), which many streams can share. Unlike those
        of `write`, they are not deferred if this iteration of the event loop has no time: the caller divides its
        work."""
        ...

    @property
    def buffered(self) -> int:
        """The approximate number of bytes that the client has not read yet."""
        ...

    async def drained(self) -> None:
        """Return when little is buffered, after other tasks could run."""
        ...

    async def closed(self) -> None:
        """Return when the peer is gone or the server stops, and the stream has to end."""
        ...


def encode_chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of HTTP/1.1."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(slots=True)
class StreamResponse:
    """An answer whose body is written over time. `run` is cancelled when the peer goes away."""

    status: int
    headers: list[tuple[str, str]]
    run: Callable[[StreamWriter], Awaitable[None]]


class RawConnection(Protocol):
    """A connection after `101 Switching Protocols`."""

    def write(self, data: bytes) -> None: ...

    async def read(self) -> bytes:
        """Return received bytes, or b"" at the end."""
        ...

    async def drained(self) -> None:
        """Return when everything is sent. Raise OSError if the peer is gone."""
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class UpgradeResponse:
    """Switches to another protocol (101): the connection belongs to `run` until it returns, and is then closed."""

    headers: list[tuple[str, str]]
    run: Callable[[RawConnection], Awaitable[None]]


# -- within the process -----------------------------------------------------------------------------------------------


class ObjectRequest(Request):
    """A request with a value instead of a body, whose answer is a value too. The body is encoded when it is first
    read."""

    __slots__ = ("_text", "claim", "value")

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: dict[str, str],
        value: Any,
        peer: Peer,
        claim: tuple[Any, ...] = (),
    ) -> None:
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.peer = peer
        self.repeated = {}
        self.value = value
        """The value; None means that there is no body."""
        self.claim = claim
        """The client's claim about the reason of the request: the arguments of `meta.cause.run_claim_values`; empty if
        there is none. Over the network, it is a header."""
        self._text: bytes | None = None

    @property
    def body(self) -> bytes:  # type: ignore[override]
        if self._text is None:
            self._text = b"" if self.value is None else orjson.dumps(self.value)
        return self._text

    def as_sent(self) -> Request:
        """Return the same request as it would be received from a network."""
        return Request(self.method, self.path, self.query, self.headers, self.body, self.peer, self.repeated)


@dataclass(slots=True)
class ObjectResponse:
    """The answer to an ObjectRequest if it is an object; otherwise the answer is one of the others."""

    status: int
    value: dict[str, Any]
    headers: list[tuple[str, str]] = field(default_factory=list)
    """Only headers that affect the client."""


class EventWriter(StreamWriter, Protocol):
    """The writing end of a watch that was requested by an ObjectRequest."""

    def event(self, kind: str, obj: dict[str, Any], size: int) -> None:
        """Send an event. `size` counts as buffered until the reader has read the event."""
        ...


def accepts_events(writer: StreamWriter) -> TypeGuard[EventWriter]:
    # A check of the Protocol takes longer than everything else that opening a watch does.
    return hasattr(writer, "event")


HttpAnswer = Response | StreamResponse | UpgradeResponse
Answer = HttpAnswer | ObjectResponse
Handler = Callable[[Request], Awaitable[Answer]]
