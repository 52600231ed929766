"""One stream of an HTTP/2 connection: its state, its receiver, and how it can fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

STREAM_WINDOW = 16 << 20
"""Bytes that the peer may send on one stream before they are acknowledged. Receivers consume data when it arrives, so
this bounds what is under way, not what is stored."""


class StreamFailed(Exception):
    """A stream ended without the peer's regular end."""

    def __init__(self, reason: str, *, may_be_processed: bool) -> None:
        super().__init__(reason)
        self.may_be_processed = may_be_processed
        """Whether the peer may have acted on the request."""


class DeadlineExceeded(StreamFailed):
    """A stream did not end by its deadline."""


class Receiver(Protocol):
    """Receives what the peer sends on one stream."""

    def on_headers(self, headers: Mapping[str, str]) -> None: ...

    def on_data(self, data: bytes) -> None: ...

    def on_end(self, trailers: Mapping[str, str]) -> None:
        """Handle the regular end; `trailers` is empty if the peer sent none, or the headers if it sent only those."""
        ...

    def on_failure(self, failure: StreamFailed) -> None: ...


class Connection(Protocol):
    """The part of a connection that its streams use."""

    def pump(self, stream: Http2Stream) -> None: ...

    def cancel(self, stream: Http2Stream) -> None: ...


class Http2Stream:
    """One request and its answer. Created by `Http2Connection.open`."""

    __slots__ = (
        "_connection",
        "_unacknowledged",
        "deadline",
        "head",
        "id",
        "outgoing",
        "receiver",
        "sending_ends",
        "window",
    )

    def __init__(self, connection: Connection, head: bytes, receiver: Receiver, deadline: float | None) -> None:
        self._connection = connection
        self._unacknowledged = 0
        self.deadline = deadline
        """The time of the event loop at which the stream fails if it has not ended; None for no limit."""
        self.id = 0
        """The identifier on the wire; 0 until the headers are sent."""
        self.head = head
        self.receiver: Receiver | None = receiver
        """The receiver of the answer; None once the stream has ended."""
        self.outgoing: deque[bytes | memoryview] = deque()
        """Data that flow control has not let through yet."""
        self.sending_ends = False
        """Whether the request ends with what is in `outgoing`."""
        self.window = 0
        """The number of bytes that the peer accepts on this stream."""

    @property
    def is_open(self) -> bool:
        return self.receiver is not None

    def send(self, data: bytes, *, end: bool = False) -> None:
        """Send data, as soon as the peer accepts it. `end` closes the request. Ignored once the stream has ended."""
        if self.receiver is None or self.sending_ends:
            return
        if data or end:
            self.outgoing.append(data)
        self.sending_ends = end
        self._connection.pump(self)

    def reset(self) -> None:
        """Cancel the stream; its receiver is not called any more."""
        if self.receiver is not None:
            self._connection.cancel(self)

    def acknowledge(self, count: int) -> int:
        """Count received bytes; return by how much the peer's window is to be enlarged now, or 0."""
        self._unacknowledged += count
        if self._unacknowledged < STREAM_WINDOW // 2:
            return 0
        enlarged, self._unacknowledged = self._unacknowledged, 0
        return enlarged
