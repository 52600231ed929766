"""Files that may change while the server runs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from setpoint.meta.clock import Clock

log = logging.getLogger("setpoint.cluster")

_LOOK_EVERY = 1.0


class FollowedFile:
    """Read every second: they are small, no file system forgets to tell, and no two changes look like none."""

    def __init__(self, path: str, known: bytes, changed: Callable[[bytes], Awaitable[bool]], clock: Clock) -> None:
        """`known`: what was read of it. `changed` gets another content, and says whether that is settled, one way or
        the other; if not, it gets it again."""
        self._path = Path(path)
        self._known = known
        self._changed = changed
        self._clock = clock
        self._is_readable = True

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        content = self._read()
        if content is not None and content != self._known and await self._changed(content):
            self._known = content

    def _read(self) -> bytes | None:
        try:
            content = self._path.read_bytes()
        except OSError as error:
            # Whoever replaces it may be between two steps; it is looked at again, and told once.
            if self._is_readable:
                log.warning("cannot read %s: %s", self._path, error.strerror)
            self._is_readable = False
            return None
        self._is_readable = True
        return content
