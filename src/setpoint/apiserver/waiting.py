"""Waiting with a time limit, and reads that must be at least as new as a revision the client has seen elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from setpoint.apiserver.registry import Registry
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Timeout

_LONGEST = 3.0
"""Seconds that a read waits for a revision, as upstream's does."""


async def happens_within(clock: Clock, seconds: float, awaited: Coroutine[Any, Any, object]) -> bool:
    """Return whether `awaited` ends within `seconds`; if not it is cancelled. What it raises is raised."""
    event, timer = asyncio.ensure_future(awaited), asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((event, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (event, timer):
            task.cancel()
        await asyncio.gather(event, timer, return_exceptions=True)
    if event.cancelled():
        return False
    event.result()
    return True


async def wait_for_revision(registry: Registry, revision: int) -> None:
    """Return once the cache has reached `revision`; a revision that does not come soon is a timeout."""
    if registry.cache.fresh >= revision:
        return
    if await happens_within(registry.env.clock, _LONGEST, registry.env.store.wait_for_revision(revision)):
        return
    error = Timeout.of(f"Too large resource version: {revision}, current: {registry.cache.fresh}", 1)
    error.details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    raise error
