"""The causes of transactions in memory.

A cause is recorded with every write and rarely read. So the causes of the latest transactions are kept as they were
given, and made one block of bytes when there are enough of them: that takes a fraction of the time that encoding each
within its write would, above all if they are only noted (`CauseEncoder`). The causes of a controller resemble each
other, so `pack` compresses all but the latest blocks: a cause then takes about 35 bytes.
"""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import itemgetter

from setpoint.store.interface import Cause, NotedCause, recorded_form

_BLOCK = 64
"""Number of causes that are encoded together."""
_RECENT_BLOCKS = 8
"""Number of the latest blocks that are not compressed; most reads are of those."""
_LEVEL = 3


class _Block:
    """Encoded causes, ascending by revision."""

    __slots__ = ("_data", "_packed", "_split", "revisions")

    def __init__(self, revisions: list[int], causes: list[bytes | NotedCause]) -> None:
        self._data, self._split = _joined(causes)
        self._packed = False
        """Whether `_data` is compressed."""
        self.revisions = array("q", revisions)

    def pack(self) -> None:
        if not self._packed:
            self._data = zlib.compress(self._data, _LEVEL, -zlib.MAX_WBITS)
            self._packed = True

    def after(self, revision: int) -> Iterator[Cause]:
        data = zlib.decompress(self._data, -zlib.MAX_WBITS) if self._packed else self._data
        first = bisect_right(self.revisions, revision)
        return map(Cause, self.revisions[first:], self._split(data, first))


_Split = Callable[[bytes, int], Iterator[bytes]]


def _joined(causes: list[bytes | NotedCause]) -> tuple[bytes, _Split]:
    """Return the causes as bytes, and the function that yields those from a position on from these bytes."""
    noted = [cause for cause in causes if not isinstance(cause, bytes)]
    if len(noted) == len(causes) and len({*map(_ENCODER, noted)}) == 1:
        encoder = noted[0][0]
        block = encoder.join(noted)
        if block is not None:
            return block, encoder.split
    data, ends = bytearray(), array("I", [0])
    for cause in causes:  # one by one, so that all are encoded in the same memory
        data += recorded_form(cause)
        ends.append(len(data))
    return bytes(data), lambda data, first: (data[begin:end] for begin, end in pairwise(ends[first:]))


_ENCODER = itemgetter(0)
"""Returns the encoder of a noted cause."""


class CauseLog:
    __slots__ = ("_blocks", "_latest", "_packed", "_revisions")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._packed = 0
        """The number of blocks, from the first, that are compressed."""
        self._latest: list[bytes | NotedCause] = []
        """Fewer than `_BLOCK` causes after those of the blocks. Each is encoded once, in the order of the revisions."""
        self._revisions: list[int] = []
        """The revision of each of them."""

    def append(self, revision: int, cause: bytes | NotedCause) -> None:
        """Add the cause of a revision that is greater than all before."""
        self._revisions.append(revision)
        self._latest.append(cause)
        if len(self._latest) >= _BLOCK:
            self._blocks.append(_Block(self._revisions, self._latest))
            self._revisions, self._latest = [], []

    def after(self, revision: int) -> Iterator[Cause]:
        """Yield the causes of the revisions greater than this one, oldest first."""
        for at in range(bisect_right(self._blocks, revision, key=_last_revision), len(self._blocks)):
            yield from self._blocks[at].after(revision)
        self._encode_latest()
        revisions, latest = self._revisions, self._latest
        for at in range(bisect_right(revisions, revision), len(revisions)):
            yield Cause(revisions[at], recorded_form(latest[at]))

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
            count = bisect_right(self._revisions, through)
            del self._revisions[:count], self._latest[:count]

    def fork(self) -> CauseLog:
        """Return an independent copy, which shares the blocks."""
        self._encode_latest()
        other = CauseLog()
        other._blocks, other._packed = self._blocks.copy(), self._packed
        other._latest, other._revisions = self._latest.copy(), self._revisions.copy()
        return other

    def _encode_latest(self) -> None:
        self._latest = [*map(recorded_form, self._latest)]


def _last_revision(block: _Block) -> int:
    return block.revisions[-1]
