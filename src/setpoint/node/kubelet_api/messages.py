"""Requests to a node and its answers, whatever carries them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Headers = list[tuple[str, str]]
PLAIN = ("Content-Type", "text/plain; charset=utf-8")
JSON = ("Content-Type", "application/json")


@dataclass(slots=True)
class NodeRequest:
    node: str
    """Which of the nodes behind one door is meant; empty where that is not known."""
    method: str
    path: str
    """Decoded."""
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""

    several: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Every value of the headers that were sent more than once."""

    def repeated(self, name: str) -> Sequence[str]:
        """All values of a header."""
        return self.several.get(name) or ([self.headers[name]] if name in self.headers else [])

    def option(self, name: str) -> str:
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """As Go reads a boolean of a query: there, and neither `false` nor `0`."""
        return name in self.query and self.option(name) not in ("false", "0")


@dataclass(slots=True)
class Whole:
    status: int
    body: bytes
    headers: Headers = field(default_factory=lambda: [PLAIN])


@dataclass(slots=True)
class Streamed:
    """Pieces as they come. Whoever stops reading closes the generator."""

    pieces: AsyncGenerator[bytes, None]
    headers: Headers = field(default_factory=lambda: [PLAIN])


class Duplex(Protocol):
    """A connection that has left HTTP."""

    def write(self, data: bytes) -> None: ...

    async def read(self) -> bytes:
        """Some bytes, or b"" at the end."""
        ...

    async def drained(self) -> None:
        """Raises OSError when the other end is gone."""
        ...


@dataclass(slots=True)
class Switched:
    """101, and then the connection belongs to `run` until it returns."""

    headers: Headers
    run: Callable[[Duplex], Awaitable[None]]


NodeAnswer = Whole | Streamed | Switched


class Refused(Exception):
    """Answered with a status and one sentence, as the kubelet words it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
