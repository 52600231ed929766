"""The garbage collector of a server process: bounded pauses, and a bound on what it leaves behind.

Nearly everything is freed by reference counting; the collector is for the cycles that are left. A collection stops the
process for as long as it takes to visit every object, so the objects are visited in slices: whatever survived a
collection of the oldest generation is frozen (`gc.freeze`), and the next one visits only what was made since. A cycle
that was alive in its slice and becomes garbage later is not found that way. For those there is a full collection, which
is made only when the process has grown by more than its stored objects account for, for a minute at least, and while
the event loop is idle.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

log = logging.getLogger("setpoint.cluster")

_YOUNG, _MIDDLE, _OLD = 1_000, 3, 1
"""Net allocations between two collections of the youngest generation, and beyond how many collections of one generation
the next is collected: a slice is some 8,000 objects."""
_LOOK_EVERY: Final = 60.0
"""Seconds between two looks at whether a full collection is worth its pause."""
_SPARE: Final = 500_000
"""Blocks of memory by which the process may grow in any case, some 50 MB."""
_PER_OBJECT: Final = 150
"""Blocks that one more stored object accounts for; a Pod with its Events and all that follows it takes 120."""
_IDLE: Final = 0.005
"""Seconds that a timer of an idle loop is late at most."""
_RETRY: Final = 1.0
_MOST_RETRIES: Final = 60
"""A loop that was busy at so many looks, a second apart, is stopped all the same."""


class Collecting:
    """Governs the collector from `start` to the end of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stored: Callable[[], int]) -> None:
        """`stored` returns how many objects the process stores: its growth is expected to follow theirs."""
        self._loop = loop
        self._stored = stored
        self._retries = 0
        self._was_overgrown = False
        """Whether the process had grown by more than its stored objects account for at the last look."""
        self._blocks = 0
        self._objects = 0
        self.full_collections = 0
        """How many full collections were made, the one at the start not counted."""

    def start(self) -> None:
        """Leave out what was loaded by now, and collect from here on. It is not searched for garbage first: that would
        take longer than the few hundred objects are worth."""
        gc.freeze()
        gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
        gc.callbacks.append(_freeze_survivors)
        gc.enable()
        self._measure()
        self._schedule(_LOOK_EVERY)

    def _schedule(self, pause: float) -> None:
        self._loop.call_later(pause, self._look, self._loop.time() + pause)

    def _look(self, due: float) -> None:
        before, self._was_overgrown = self._was_overgrown, self._overgrown()
        if not (before and self._was_overgrown):
            # Growth at one look may be a few large requests that are being answered.
            self._retries = 0
            self._schedule(_LOOK_EVERY)
            return
        if self._loop.time() - due > _IDLE and self._retries < _MOST_RETRIES:
            self._retries += 1
            self._schedule(_RETRY)
            return
        self._retries = 0
        self._was_overgrown = False
        began, blocks = self._loop.time(), self._blocks
        gc.unfreeze()
        found = gc.collect()
        self.full_collections += 1
        self._measure()
        log.info(
            "full garbage collection after growing from %d blocks: %d unreachable objects, %d blocks left, %.0f ms",
            blocks, found, self._blocks, (self._loop.time() - began) * 1e3,
        )  # fmt: skip
        self._schedule(_LOOK_EVERY)

    def _overgrown(self) -> bool:
        expected = max(0, self._stored() - self._objects) * _PER_OBJECT
        return sys.getallocatedblocks() - expected > self._blocks + self._blocks // 2 + _SPARE

    def _measure(self) -> None:
        self._blocks, self._objects = sys.getallocatedblocks(), self._stored()


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
