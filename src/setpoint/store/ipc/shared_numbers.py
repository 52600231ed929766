"""Numbers about a store, in memory that processes share.

The owner of the store writes its revision before it acknowledges a transaction, so a process that reads it knows what
was acknowledged before. To read it costs no message, and no time of the owner."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Final

_SIZE: Final = mmap.PAGESIZE
_COMMITTED, _COMPACTED, _BYTES = range(3)


class SharedNumbers:
    def __init__(self, descriptor: int) -> None:
        """Map the memory of a descriptor that `create` has made, in this process or in its parent."""
        self._memory = mmap.mmap(descriptor, _SIZE)
        # Each is an aligned word of the machine, which is read and written at once.
        self._words = memoryview(self._memory).cast("Q")

    @staticmethod
    def create() -> int:
        """Return a descriptor of new memory, which the caller closes."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("setpoint-store")
        else:  # not Linux
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, _SIZE)
        return descriptor

    @property
    def committed(self) -> int:
        """Return the revision of the store."""
        return self._words[_COMMITTED]

    @committed.setter
    def committed(self, revision: int) -> None:
        self._words[_COMMITTED] = revision

    @property
    def compacted(self) -> int:
        """Return the revision up to which the store is compacted."""
        return self._words[_COMPACTED]

    @compacted.setter
    def compacted(self, revision: int) -> None:
        self._words[_COMPACTED] = revision

    @property
    def size(self) -> int:
        """Return the approximate size of the store on its medium when it was last measured, in bytes."""
        return self._words[_BYTES]

    @size.setter
    def size(self, size: int) -> None:
        self._words[_BYTES] = size
