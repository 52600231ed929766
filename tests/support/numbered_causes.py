"""Causes that are numbers until a store encodes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from setpoint.store.interface import NotedCause


class NumberedCauses:
    """A `CauseEncoder` that records its calls. The block of causes cannot be made if `joins` is False, or if the first
    of them is `unjoinable`."""

    def __init__(self, joins: bool = True, unjoinable: int = -1) -> None:
        self.joins = joins
        self.unjoinable = unjoinable
        self.calls: list[str] = []

    def note(self, number: int) -> NotedCause:
        return self, number

    def encode(self, cause: NotedCause) -> bytes:
        self.calls.append(f"encode {cause[1]}")
        return b"%d" % cause[1]

    def join(self, causes: Sequence[NotedCause]) -> bytes | None:
        self.calls.append(f"join {len(causes)}")
        if not self.joins or causes[0][1] == self.unjoinable:
            return None
        return b" ".join(b"%d" % each[1] for each in causes)

    def split(self, block: bytes, first: int) -> Iterator[bytes]:
        return iter(block.split(b" ")[first:])
