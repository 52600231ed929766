"""The causes of transactions in memory.

A cause is recorded with every write and rarely read. So the causes of the latest transactions are kept as they were
given, and encoded when there are enough of them: encoding many in a row takes a fraction of the time that encoding each
within its write would. Encoded causes are kept as one block with their offsets, which is half as large as one object
for each. The causes of a controller resemble each other, so `pack` compresses all but the latest blocks: a cause then
takes about 35 bytes.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import SupportsBytes

from setpoint.store.interface import Cause

_BLOCK = 64
"""Number of causes that are encoded together."""
_RECENT_BLOCKS = 8
"""Number of the latest blocks that are not compressed; most reads are of those."""
_LEVEL = 3


class _Block:
    """Encoded causes, ascending by revision."""

    __slots__ = ("_data", "_packed", "ends", "revisions")

    def __init__(self, causes: list[tuple[int, SupportsBytes]]) -> None:
        data, ends = bytearray(), []
        for _, cause in causes:  # one by one, so that all are encoded in the same memory
            data += bytes(cause)
            ends.append(len(data))
        self._data = bytes(data)
        self._packed = False
        """Whether `_data` is compressed."""
        self.revisions = array("q", [revision for revision, _ in causes])
        self.ends = array("I", ends)
        """The offset at which each cause ends."""

    def pack(self) -> None:
        if not self._packed:
            self._data = zlib.compress(self._data, _LEVEL, -zlib.MAX_WBITS)
            self._packed = True

    def after(self, revision: int) -> Iterator[Cause]:
        data = zlib.decompress(self._data, -zlib.MAX_WBITS) if self._packed else self._data
        place = bisect_right(self.revisions, revision)
        begin = self.ends[place - 1] if place else 0
        for each, end in zip(self.revisions[place:], self.ends[place:], strict=True):
            yield Cause(each, data[begin:end])
            begin = end


class CauseLog:
    __slots__ = ("_blocks", "_latest", "_packed")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._packed = 0
        """The number of blocks, from the first, that are compressed."""
        self._latest: list[tuple[int, SupportsBytes]] = []
        """Fewer than `_BLOCK` causes after those of the blocks. Each is encoded once, in the order of the revisions."""

    def append(self, revision: int, cause: SupportsBytes) -> None:
        """Add the cause of a revision that is greater than all before."""
        self._latest.append((revision, cause))
        if len(self._latest) >= _BLOCK:
            self._blocks.append(_Block(self._latest))
            self._latest = []

    def after(self, revision: int) -> Iterator[Cause]:
        """Yield the causes of the revisions greater than this one, oldest first."""
        for at in range(bisect_right(self._blocks, revision, key=_last_revision), len(self._blocks)):
            yield from self._blocks[at].after(revision)
        self._encode_latest()
        latest = self._latest
        for at in range(bisect_right(latest, revision, key=_revision), len(latest)):
            found, cause = latest[at]
            yield Cause(found, bytes(cause))

    def pack(self, limit: int) -> None:
        """Compress about `limit` further causes, if there are so many; more than as many transactions can have."""
        for _ in range(limit // _BLOCK + 1):
            if self._packed >= len(self._blocks) - _RECENT_BLOCKS:
                return
            self._blocks[self._packed].pack()
            self._packed += 1

    def drop(self, through: int) -> None:
        """Forget the causes of the revisions up to this one; a few of them may remain until a later call."""
        count = bisect_right(self._blocks, through, key=_last_revision)
        del self._blocks[:count]
        self._packed = max(0, self._packed - count)
        if not self._blocks:
            del self._latest[: bisect_right(self._latest, through, key=_revision)]

    def fork(self) -> CauseLog:
        """Return an independent copy, which shares the blocks."""
        self._encode_latest()
        other = CauseLog()
        other._blocks, other._latest = self._blocks.copy(), self._latest.copy()
        other._packed = self._packed
        return other

    def _encode_latest(self) -> None:
        self._latest = [(revision, bytes(cause)) for revision, cause in self._latest]


def _revision(item: tuple[int, SupportsBytes]) -> int:
    return item[0]


def _last_revision(block: _Block) -> int:
    return block.revisions[-1]
