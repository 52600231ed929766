"""What carries requests to an API server: over a wire or within the process, the client cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

if TYPE_CHECKING:
    from setpoint.client.upgraded import Upgraded

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


@dataclass(slots=True)
class ObjectReply:
    status: int
    headers: Headers
    value: dict[str, Any] | None
    """Shared: read and never changed. None: the answer is no object, and `body` has it."""
    body: bytes = b""


Event = tuple[str, dict[str, Any]]
"""Type and object, as they stand in a watch."""


class EventStream(Protocol):
    async def __anext__(self) -> Event:
        """The next, in order, until the server ends it with StopAsyncIteration; ConnectionError if it broke off."""
        ...

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


class ObjectTransport(Transport, Protocol):
    """A transport that has no wire to cross can take objects as they are, and hand out those that everyone shares."""

    async def exchange(self, method: str, path: str, query: str, headers: Headers, value: Any) -> ObjectReply:
        """`value` is neither changed nor kept. None: there is none."""
        ...

    async def follow(self, path: str, query: str, headers: Headers) -> EventStream | ObjectReply:
        """A watch, or the refusal."""
        ...


def takes_objects(transport: Transport) -> TypeGuard[ObjectTransport]:
    # Every component has clients of its own, and asking a Protocol takes long.
    return hasattr(transport, "exchange")


@runtime_checkable
class UpgradingTransport(Transport, Protocol):
    """One with a wire, which can be used for something else than HTTP."""

    async def upgrade(self, path: str, query: str, headers: Headers) -> Upgraded | Reply:
        """Raises Unreachable."""
        ...
