"""How much and how long the wire puts up with a client."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    body: int = 3 * 1024 * 1024
    """Bytes of a request's body; more is 413."""
    head: int = 1024 * 1024
    """Bytes of request line and headers together; also of trailers, and of what lies between two pieces of body."""
    headers: int = 1000
    path: int = 64 * 1024
    """Bytes of a path as sent, without the query. Go has no such bound; no object's path comes near it."""
    pipelined: int = 64 * 1024
    """Bytes taken in while an earlier request of the connection is being handled; then reading pauses."""
    write_buffer: int = 256 * 1024
    """Bytes not yet taken by the kernel at which a connection counts as paused."""

    # All in seconds, held to the precision of `tick`.
    head_timeout: float = 10.0
    body_timeout: float = 60.0
    idle_timeout: float = 90.0
    write_timeout: float = 60.0
    """Without the client taking a single byte."""
    handshake_timeout: float = 10.0
    handshakes: int = 2000
    """So many at once; of more, the oldest are cut off."""
    linger: float = 1.0
    """How long a refused client may go on sending before the connection is cut: cutting at once could destroy the
    answer on its way."""
    tick: float = 1.0
    """How often deadlines are looked at: one sweep over all connections instead of a timer for each request."""
