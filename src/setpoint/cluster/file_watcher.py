"""Reloading of files that may change while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from setpoint.meta.clock import Clock

log = logging.getLogger("setpoint.cluster")

_POLL_INTERVAL = 1.0


class FileWatcher:
    """Reads a small file every second and reports changes. Polling works on every file system and misses no change."""

    def __init__(self, path: str, known: bytes, changed: Callable[[bytes], Awaitable[bool]], clock: Clock) -> None:
        """`known` is the content read so far. `changed` is called with new content and returns whether it is done with
        it, applied or rejected; otherwise it is called with it again."""
        self._path = Path(path)
        self._known = known
        self._changed = changed
        self._clock = clock
        self._is_readable = True

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_POLL_INTERVAL)
            await self.check()

    async def check(self) -> None:
        """Read the file once, and report its content if it has changed."""
        content = self._read()
        if content is not None and content != self._known and await self._changed(content):
            self._known = content

    def _read(self) -> bytes | None:
        try:
            content = self._path.read_bytes()
        except OSError as error:
            # The file may be in the middle of a replacement. It is read again, and the warning is logged once.
            if self._is_readable:
                log.warning("cannot read %s: %s", self._path, error.strerror)
            self._is_readable = False
            return None
        self._is_readable = True
        return content
