"""The body of a list: put together piece by piece, when the client takes it.

Until then it is no more than references to the objects' own bytes, so a hundred clients that take their time with a
large list do not hold a hundred copies of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from setpoint.apiserver.http.encoding import BLOCK


class Listing(Sequence[bytes]):
    __slots__ = ("_group", "_head", "_items", "_tail", "size")

    def __init__(self, head: bytes, items: Sequence[bytes], tail: bytes) -> None:
        """`items` with commas between `head` and `tail`."""
        self._head = head
        self._items = items
        self._tail = tail
        inner = sum(map(len, items))
        count = len(items)
        self.size = len(head) + inner + max(0, count - 1) + len(tail)
        """Bytes of all pieces together."""
        self._group = max(1, BLOCK * count // inner) if inner else 1

    def __len__(self) -> int:
        return -(-len(self._items) // self._group) + 2

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        last = len(self) - 1
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(last + 1))]
        if index < 0:
            index += last + 1
        if not 0 <= index <= last:
            raise IndexError(index)
        if index == 0:
            return self._head
        if index == last:
            return self._tail
        start = (index - 1) * self._group
        piece = b",".join(self._items[start : start + self._group])
        return piece if index == last - 1 else piece + b","
