"""Retry read-modify-write cycles on conflicts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict

T = TypeVar("T")


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[T]], clock: Clock, *, attempts: int = 5, pause: float = 0.01
) -> T:
    """Call `attempt`, which reads, changes and writes, until there is no conflict. Raise the last Conflict after
    `attempts`."""
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except Conflict:
            await clock.sleep(pause)
    return await attempt()
