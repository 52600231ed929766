"""Files that may change while the server runs."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable

from setpoint.meta.clock import Clock

log = logging.getLogger("setpoint.cluster")

_LOOK_EVERY = 1.0


class FollowedFile:
    """Looked at every second: cheap, and no file system forgets to tell."""

    def __init__(self, path: str, known: bytes, changed: Callable[[bytes], Awaitable[bool]], clock: Clock) -> None:
        """`known`: what was read of it. `changed` gets another content, and says whether that is settled, one way or
        the other; if not, it gets it again."""
        self._path = path
        self._known = known
        self._changed = changed
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY)
            await self.look()

    async def look(self) -> None:
        found = self._read()
        if found is not None and (found[0] == self._known or await self._changed(found[0])):
            self._known, self._seen = found

    def _read(self) -> tuple[bytes, tuple[int, int, int]] | None:
        """What it holds, and by which it is told from what it was; None: there is nothing new."""
        try:
            state = os.stat(self._path)
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen == self._seen:
                return None
            with open(self._path, "rb") as file:
                return file.read(), seen
        except OSError as error:
            # Whoever replaces it may be between two steps; it is looked at again.
            log.warning("cannot read %s: %s", self._path, error.strerror)
            return None
