"""A sorted set of keys that is cheap to change and to slice.

It is a sorted list split into chunks, so that one insertion moves a few hundred pointers and not two hundred thousand.
(Python compares str by code point, which is the byte order of UTF-8.)"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import chain

_CHUNK_SIZE = 512


class KeyOrder:
    __slots__ = ("_chunks", "_lasts")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[at : at + _CHUNK_SIZE] for at in range(0, len(ordered), _CHUNK_SIZE)]
        # _lasts[i] is always _chunks[i][-1]; no chunk is ever empty.
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def copy(self) -> KeyOrder:
        other = KeyOrder()
        other._chunks = [chunk.copy() for chunk in self._chunks]
        other._lasts = self._lasts.copy()
        return other

    def add(self, key: str) -> None:
        """Add a key, which must not be present."""
        if not self._chunks:
            self._chunks.append([key])
            self._lasts.append(key)
            return
        at = bisect_left(self._lasts, key)
        if at == len(self._chunks):
            at -= 1
            self._chunks[at].append(key)
            self._lasts[at] = key
        else:
            insort(self._chunks[at], key)
        if len(self._chunks[at]) > 2 * _CHUNK_SIZE:
            self._split(at)

    def remove(self, key: str) -> None:
        """Remove a key, which must be present."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if not chunk:
            del self._chunks[at], self._lasts[at]
            return
        self._lasts[at] = chunk[-1]
        if len(chunk) < _CHUNK_SIZE // 4 and at + 1 < len(self._chunks):
            chunk.extend(self._chunks[at + 1])
            self._lasts[at] = chunk[-1]
            del self._chunks[at + 1], self._lasts[at + 1]
            if len(chunk) > 2 * _CHUNK_SIZE:
                self._split(at)

    def _split(self, at: int) -> None:
        chunk = self._chunks[at]
        self._chunks.insert(at + 1, chunk[_CHUNK_SIZE:])
        del chunk[_CHUNK_SIZE:]
        self._lasts.insert(at, chunk[-1])

    def between(self, first: str, end: str | None, limit: int = 0) -> tuple[list[str], int]:
        """Return the keys k with first <= k < end, at most `limit` of them (0: all), and their total number.

        An `end` of None means no end."""
        chunks = self._chunks
        from_chunk, from_place = self._find(first)
        to_chunk, to_place = (len(chunks), 0) if end is None else self._find(end)
        if (from_chunk, from_place) >= (to_chunk, to_place):
            return [], 0
        if from_chunk == to_chunk:
            total = to_place - from_place
            keys = chunks[from_chunk][from_place : min(to_place, from_place + limit) if limit else to_place]
            return keys, total
        total = sum(map(len, chunks[from_chunk:to_chunk])) - from_place + to_place
        keys = chunks[from_chunk][from_place:]
        for chunk in chunks[from_chunk + 1 : to_chunk]:
            if limit and len(keys) >= limit:
                break
            keys += chunk
        if to_place and not (limit and len(keys) >= limit):
            keys += chunks[to_chunk][:to_place]
        if limit:
            del keys[limit:]
        return keys, total

    def each(self, first: str, end: str | None) -> Iterator[str]:
        """Return the keys k with first <= k < end (None: no end). They must not change during the iteration."""
        from_chunk, from_place = self._find(first)
        to_chunk, to_place = (len(self._chunks), 0) if end is None else self._find(end)
        chunks = self._chunks[from_chunk : to_chunk + 1]
        if chunks and to_chunk < len(self._chunks):
            chunks[-1] = chunks[-1][:to_place]
        if chunks and from_place:
            chunks[0] = chunks[0][from_place:]
        return chain.from_iterable(chunks)

    def _find(self, key: str) -> tuple[int, int]:
        """Return the position (chunk, index) of the first key >= `key`, or (number of chunks, 0) if there is none."""
        at = bisect_left(self._lasts, key)
        return at, bisect_left(self._chunks[at], key) if at < len(self._chunks) else 0


def prefix_end(prefix: str) -> str | None:
    """Return the first string after all strings with `prefix`, or None if there is none."""
    for last in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[last])
        if point < 0x10FFFF:
            # The code points in between are surrogates, which no valid key holds.
            return prefix[:last] + chr(0xE000 if point == 0xD7FF else point + 1)
    return None
