"""What carries requests to an API server: over a wire or within the process, the client cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Headers = Sequence[tuple[str, str]]
"""Names in lower case, in the order sent; a name may come more than once."""


class Unreachable(ConnectionError):
    """The server could not be reached, or went away before its answer was complete: nobody knows what it did.
    The message is one sentence for people."""


def header(headers: Headers, name: str) -> str:
    """The first value, or the empty text."""
    for key, value in headers:
        if key == name:
            return value
    return ""


@dataclass(slots=True)
class Reply:
    status: int
    headers: Headers
    body: bytes


class StreamReply(Protocol):
    """An answer whose body comes over time. Iterating gives its pieces, in order, until the server ends it;
    raises Unreachable if it broke off before."""

    status: int
    headers: Headers

    def __aiter__(self) -> StreamReply: ...

    async def __anext__(self) -> bytes: ...

    def close(self) -> None:
        """The rest is not wanted: frees everything, at once, any number of times."""
        ...


class Transport(Protocol):
    """Both calls raise Unreachable, and take being cancelled at any time."""

    async def request(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> Reply:
        """`path` is percent-encoded; `query` is without the question mark."""
        ...

    async def stream(self, method: str, path: str, query: str, headers: Headers, body: bytes) -> StreamReply:
        """Returns when the head of the answer is there. The caller closes what it gets."""
        ...

    async def close(self) -> None: ...
