"""Periodic reduction of the memory of the watch caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.meta.clock import Clock

INTERVAL = 0.5
"""Seconds for which an object must not have been written; one that changes often is not processed for each of its
versions."""
RELEASE_ROUNDS = 120
"""Number of rounds after which the bytes of objects that were read are released, too: those of an object that is read
all the time are decompressed once in a minute."""
_STEP = 32
"""Number of written objects that are processed in one iteration of the event loop: about a millisecond."""
_RELEASE_STEP = 2_000
"""Number of objects that are released in one iteration of the event loop: less than a millisecond."""
_PAUSE = 0.005


async def settle_forever(
    caches: Callable[[], Iterable[ResourceCache]], clock: Clock, interval: float = INTERVAL
) -> None:
    """Reduce the memory of the objects that were written, but not during the last interval, or read, until cancelled,
    in short steps."""
    seen = 0
    for number in count(1):
        await clock.sleep(interval)
        found = [*caches()]
        until, seen = seen, max((cache.fresh_revision for cache in found), default=0)
        for cache in found:
            while not cache.settle(until, _STEP):
                await clock.sleep(_PAUSE)
            if number % RELEASE_ROUNDS == 0:
                position = cache.release("", _RELEASE_STEP)
                while position:
                    await clock.sleep(_PAUSE)
                    position = cache.release(position, _RELEASE_STEP)
