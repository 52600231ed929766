"""Compact the store periodically, so that its history stays bounded."""

from __future__ import annotations

import logging

from setpoint.meta.clock import Clock
from setpoint.store.interface import Store, Unavailable

log = logging.getLogger(__name__)


async def compact_forever(store: Store, clock: Clock, interval: float = 300.0) -> None:
    """Compact every `interval` seconds what is older than one interval, until cancelled.

    A revision that was current when it was read stays readable, and a watch can resume from it, for at least one
    interval and at most two. A store that has failed ends this with its StoreError; an unavailable store is tried again
    after the next interval."""
    seen = store.revision
    while True:
        await clock.sleep(interval)
        # The revision of the previous round was current then, and a client may be paging through it: keep it readable.
        oldest_kept, seen = seen, store.revision
        if oldest_kept - 1 > store.compacted:
            try:
                await store.compact(oldest_kept - 1)
            except Unavailable as error:
                log.warning("the history was not compacted, trying again in %s seconds: %s", interval, error)
