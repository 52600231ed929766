"""Keeps history bounded: every interval, what is older than one interval is forgotten."""

from __future__ import annotations

import logging

from setpoint.meta.clock import Clock
from setpoint.store.interface import Store, Unavailable

log = logging.getLogger(__name__)


async def compact_forever(store: Store, clock: Clock, interval: float = 300.0) -> None:
    """Whoever read at some revision can read and resume from there for at least `interval` seconds, at most two. Runs
    until it is cancelled; a store that has failed ends it with its StoreError, one that is unavailable is tried again
    after the next interval."""
    seen = store.revision
    while True:
        await clock.sleep(interval)
        # The revision seen back then was the present, and somebody may be paging through it: it stays readable.
        oldest_kept, seen = seen, store.revision
        if oldest_kept - 1 > store.compacted:
            try:
                await store.compact(oldest_kept - 1)
            except Unavailable as error:
                log.warning("history is not compacted now: %s", error)
