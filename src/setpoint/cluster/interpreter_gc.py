"""Tuning of the interpreter's garbage collector for a server process: short pauses, bounded garbage.

Nearly all objects are freed by reference counting; the collector is for reference cycles. A collection blocks the
process while it visits objects, so it visits them in slices: objects that survive a collection are frozen
(`gc.freeze`), and the next collection visits only those created since. There is one generation in effect: visiting a
new object again in an older one takes more time than it saves memory. A cycle that was alive in its slice and becomes
garbage later is not found that way. A full collection finds it. It runs only when the process has grown by more than
its stored objects account for, for at least a minute, and while the event loop is idle.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

log = logging.getLogger("setpoint.cluster")

_SLICE: Final = 5_000
"""New objects after which the collector visits them."""
_CHECK_INTERVAL: Final = 60.0
"""Seconds between two checks whether a full collection is due."""
_ALLOWED_GROWTH: Final = 500_000
"""Memory blocks by which the process may always grow, about 50 MB."""
_BLOCKS_PER_OBJECT: Final = 150
"""Memory blocks that one stored object accounts for; a Pod with its Events and caches takes 120."""
_MAX_IDLE_DELAY: Final = 0.005
"""Seconds by which a timer of an idle event loop is late at most."""
_RETRY_INTERVAL: Final = 1.0
_MAX_RETRIES: Final = 60
"""Checks that a busy event loop postpones the full collection; the next one collects anyway."""


class GarbageCollection:
    """Controls the garbage collector from `start` to the end of the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stored: Callable[[], int]) -> None:
        """`stored` returns the number of stored objects, with which memory is expected to grow."""
        self._loop = loop
        self._stored = stored
        self._retries = 0
        self._was_overgrown = False
        """Whether the process had grown too much at the last check."""
        self._blocks = 0
        self._objects = 0
        self.full_collections = 0
        """The number of full collections so far."""

    def start(self) -> None:
        """Exclude the objects that exist now, and start collecting. They are not collected first: the few hundred that
        are garbage are not worth the time."""
        gc.freeze()
        gc.collect()  # of nothing; see `_check`
        gc.set_threshold(_SLICE)
        gc.callbacks.append(_freeze_survivors)
        gc.enable()
        self._measure()
        self._schedule(_CHECK_INTERVAL)

    def _schedule(self, pause: float) -> None:
        self._loop.call_later(pause, self._check, self._loop.time() + pause)

    def _check(self, due: float) -> None:
        before, self._was_overgrown = self._was_overgrown, self._overgrown()
        if not (before and self._was_overgrown):
            # Growth at a single check may be due to a few large requests.
            self._retries = 0
            self._schedule(_CHECK_INTERVAL)
            return
        if self._loop.time() - due > _MAX_IDLE_DELAY and self._retries < _MAX_RETRIES:
            self._retries += 1
            self._schedule(_RETRY_INTERVAL)
            return
        self._retries = 0
        self._was_overgrown = False
        started, blocks = self._loop.time(), self._blocks
        gc.unfreeze()
        found = gc.collect()
        # The survivors are frozen now. The interpreter waits with the next slice until it would have a quarter of the
        # objects of the last collection: without this one of nothing, that would be a long slice.
        gc.collect()
        self.full_collections += 1
        self._measure()
        log.info(
            "full garbage collection after growing from %d blocks: %d unreachable objects, %d blocks left, %.0f ms",
            blocks,
            found,
            self._blocks,
            (self._loop.time() - started) * 1e3,
        )
        self._schedule(_CHECK_INTERVAL)

    def _overgrown(self) -> bool:
        expected = max(0, self._stored() - self._objects) * _BLOCKS_PER_OBJECT
        return sys.getallocatedblocks() - expected > self._blocks + self._blocks // 2 + _ALLOWED_GROWTH

    def _measure(self) -> None:
        self._blocks, self._objects = sys.getallocatedblocks(), self._stored()


def _freeze_survivors(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop":
        gc.freeze()
