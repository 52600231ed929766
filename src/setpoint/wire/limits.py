"""Limits on what one client may make a server hold or wait for."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Sizes in bytes and times in seconds; times have the precision of `tick`."""

    body: int = 3 * 1024 * 1024
    """Size of a request body; a longer one is refused with 413."""
    buffered_bodies: int = 0
    """Size of all incomplete request bodies of all connections together, after which requests are refused with 503;
    0 means no limit."""
    head: int = 1024 * 1024
    """Size of request line and headers together; also of trailers, and of the framing between two pieces of a body."""
    headers: int = 1000
    """Number of headers of a request."""
    path: int = 64 * 1024
    """Size of a path as sent, without the query. Go has no such limit; paths of objects are much shorter."""
    pipelined: int = 64 * 1024
    """Bytes that are received while an earlier request of the connection is being handled; then reading pauses."""
    write_buffer: int = 256 * 1024
    """Bytes that the kernel has not accepted yet, at which a connection counts as paused."""
    connections: int = 0
    """Number of open connections, after which new ones are closed at once; 0 means no limit."""
    handshakes: int = 2000
    """Number of concurrent TLS handshakes, after which the oldest are aborted."""

    head_timeout: float = 10.0
    body_timeout: float = 60.0
    idle_timeout: float = 90.0
    """Time between two requests of a connection."""
    write_timeout: float = 60.0
    """Time in which the client must read at least one byte of a response."""
    handshake_timeout: float = 10.0
    linger: float = 1.0
    """Time in which a refused client may continue to send before the connection is closed: closing at once could
    destroy the response on its way."""
    tick: float = 1.0
    """Interval at which deadlines are checked: one pass over all connections instead of a timer for each request."""
