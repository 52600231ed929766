"""Periodic maintenance of a store: compaction of its history, compression of its values, and checks of its files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from setpoint.meta.clock import Clock
from setpoint.store.interface import Store, StoreError, Unavailable

if TYPE_CHECKING:
    from setpoint.store.in_memory_reads import InMemoryReads
    from setpoint.store.sqlite import SqliteStore


log = logging.getLogger(__name__)
CHECK_INTERVAL = 3.0
"""Seconds between checks. Writes between a loss and the check that finds it are acknowledged and lost."""
PACK_INTERVAL = 0.5
"""Seconds for which values stay uncompressed at least: most reads are reads of what was just written."""
_PACK_PAUSE = 0.005
"""Seconds between two steps of compression, which take about a millisecond each."""


async def compact_forever(store: Store, clock: Clock, interval: float = 300.0) -> None:
    """Compact every `interval` seconds what is older than one interval, until cancelled.

    A revision that was current when it was read stays readable, and a watch can resume from it, for at least one
    interval and usually at most two. Of several servers on one medium one compacts; if it stops, another one does after
    two intervals at most. A store that has failed ends this with its StoreError; an unavailable store is tried again
    after the next interval."""
    seen = store.revision
    while True:
        await clock.sleep(interval)
        # The revision of the previous round was current then, and a client may be paging through it: keep it readable.
        oldest_kept, seen = seen, store.revision
        if oldest_kept - 1 > store.compacted:
            try:
                await store.compact_if_first(oldest_kept - 1)
            except Unavailable as error:
                log.warning("the history was not compacted, trying again in %s seconds: %s", interval, error)


async def pack_forever(store: InMemoryReads, clock: Clock, interval: float = PACK_INTERVAL) -> None:
    """Compress every `interval` seconds the values that were written before the previous interval, until cancelled.
    The work is done in short steps, between which requests are served."""
    seen = store.revision
    while True:
        await clock.sleep(interval)
        until, seen = seen, store.revision
        while not store.pack(until):
            await clock.sleep(_PACK_PAUSE)


async def check_forever(store: SqliteStore, clock: Clock, interval: float = CHECK_INTERVAL) -> None:
    """Check until cancelled, or until the store has failed: every later call of the store then reports the failure."""
    while True:
        await clock.sleep(interval)
        try:
            await store.check()
        except StoreError:
            return
