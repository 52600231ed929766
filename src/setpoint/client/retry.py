"""Reading, changing and writing until nobody was faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict

T = TypeVar("T")


async def retry_on_conflict(
    attempt: Callable[[], Awaitable[T]], clock: Clock, *, attempts: int = 5, pause: float = 0.01
) -> T:
    """`attempt` reads afresh, changes and writes. After the last conflict, the conflict is raised."""
    for _ in range(attempts - 1):
        try:
            return await attempt()
        except Conflict:
            await clock.sleep(pause)
    return await attempt()
