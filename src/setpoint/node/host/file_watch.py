"""Notifications about changes in a directory, by inotify where the system has descriptors left, and else by polling."""

from __future__ import annotations

import asyncio
import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from setpoint.meta.clock import Clock
from setpoint.node.host.blocking import BlockingPool
from setpoint.tasks import within

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE = 0x2, 0x80, 0x100
_IN_REMOVED = 0x40 | 0x200 | 0x400 | 0x800
"""A file was moved away or deleted, or the directory itself was."""
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
"""The flags of inotify_init1, which have the values of those of `open`."""
_POLL_INTERVAL: Final = 0.25
_BUFFER: Final = 64 * 1024


class DirectoryWatch:
    """Waits for changes of the files in a directory. Changes between two waits are not lost."""

    def __init__(self, descriptor: int, clock: Clock) -> None:
        """`descriptor` is that of an inotify instance, or -1 for polling."""
        self._descriptor = descriptor
        self._clock = clock
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if descriptor >= 0:
            self._loop.add_reader(descriptor, self._readable)

    @classmethod
    async def open(cls, directory: Path, pool: BlockingPool, clock: Clock, *, removals: bool = False) -> DirectoryWatch:
        """Watch a directory; with `removals`, files that are removed are changes too."""
        return cls(await pool.run(_inotify, directory, removals), clock)

    @property
    def polls(self) -> bool:
        """Whether changes are not noticed, so that the caller must look for them."""
        return self._descriptor < 0

    async def changed(self, timeout: float) -> bool:
        """Return whether something has changed within `timeout` seconds; when polling, whether to look again."""
        if self._descriptor < 0:
            await self._clock.sleep(min(_POLL_INTERVAL, timeout))
            return True
        try:
            await within(self._clock, timeout, self._changed.wait())
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _readable(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._descriptor, _BUFFER)
        self._changed.set()


def _inotify(directory: Path, removals: bool) -> int:
    """Return an inotify instance that watches a directory; -1 if the system has none left."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(_FLAGS))
    events = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | (_IN_REMOVED if removals else 0)
    if descriptor >= 0 and libc.inotify_add_watch(descriptor, os.fsencode(directory), events) < 0:
        os.close(descriptor)
        return -1
    return descriptor
