"""What passes between the wire and the API server: requests, answers, streams. No sockets in here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True)
class Peer:
    """Who is on the other end of the connection; one object per connection, so it can key caches."""

    address: str = ""
    port: int = 0
    certificate: bytes | None = None
    """The client's verified certificate, DER; None without one."""
    attributes: dict[str, object] = field(default_factory=dict)
    """What filters learnt about this connection once and want to keep (such as the user of its certificate)."""


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
        """Bytes accepted but not yet taken by the kernel."""
        ...

    async def drained(self) -> None:
        """Returns when little is buffered."""
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


Answer = Response | StreamResponse | UpgradeResponse
Handler = Callable[[Request], Awaitable[Answer]]
