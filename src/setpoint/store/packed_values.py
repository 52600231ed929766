"""Compression of values in memory.

Objects of one resource resemble each other, and so do the versions of one object. A value is compressed with another
value of its resource as the dictionary, its *base*, which stays uncompressed. So a value of 5 KiB takes about 300
bytes, and is read with one decompression of a few microseconds, however many versions there are.
"""

from __future__ import annotations

import zlib
from typing import Any

from setpoint.store.interface import KeyValue

_MIN_SIZE, _MAX_SIZE = 256, 24 << 10
"""Bytes of the values that are compressed. Smaller ones do not gain; a larger one would block the event loop, and zlib
could not refer to most of its base."""
_MIN_RATIO = 4
"""A value that does not shrink to this fraction is kept, and becomes a base for the values that follow."""
_LEVEL = 3
_MIN_WINDOW, _MAX_WINDOW = 10, 15
"""Bits of zlib's window, which must span a base."""
_WINDOW_MARGIN = 1024
"""Bytes by which the window is larger than the base: an equal text need not be at the same offset."""
_MEMORY_LEVEL = 6
_MAX_BASES = 512
_MAX_PREPARED = 8
"""Compressors that are kept, of up to 200 KiB each."""


class Packer:
    """Compresses values, and selects their bases."""

    __slots__ = ("_bases", "_prepared", "saved")

    def __init__(self) -> None:
        self._bases: dict[str, bytes] = {}
        """The latest base by resource, and by the key up to its last dash: the Pods of one ReplicaSet share that. In
        the order in which they were added; the number is bounded."""
        self._prepared: dict[int, tuple[bytes, Any]] = {}
        """Compressors that have read a base, with the base, by its identity: a copy of one is quicker than to read the
        base again. The number is bounded."""
        self.saved = 0
        """Bytes by which the values are smaller that were compressed so far."""

    def copy(self) -> Packer:
        other = Packer()
        other._bases = self._bases.copy()
        return other

    def pack(self, resource: str, entry: KeyValue) -> None:
        """Compress the value of an entry, unless it is to be kept as it is."""
        if entry.compressed is not None or not _MIN_SIZE <= entry.size <= _MAX_SIZE:
            return
        value = entry.value
        if type(value) is not bytes:
            return
        group = entry.key[: entry.key.rfind("-") + 1] or entry.key
        base = self._bases.get(group) or self._bases.get(resource)
        if base is value:
            return
        if base is not None:
            stream = self._compressed(value, base)
            if len(stream) * _MIN_RATIO <= len(value):
                entry.compress(stream, base)
                self.saved += len(value) - len(stream)
                return
        for name in (resource, group):
            self._bases.pop(name, None)
            self._bases[name] = value
        while len(self._bases) > _MAX_BASES:
            del self._bases[next(iter(self._bases))]

    def _compressed(self, value: bytes, base: bytes) -> bytes:
        known = self._prepared.get(id(base))
        if known is None:
            if len(self._prepared) >= _MAX_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            known = self._prepared[id(base)] = (base, _compressor(base))
        with_base = known[1].copy()
        stream: bytes = with_base.compress(value) + with_base.flush()
        return stream


def _compressor(base: bytes) -> Any:
    window = min(max((len(base) + _WINDOW_MARGIN).bit_length(), _MIN_WINDOW), _MAX_WINDOW)
    return zlib.compressobj(_LEVEL, zlib.DEFLATED, -window, _MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, base)
