"""Which store the servers and clusters of a test work on. `chosen_stores.py` makes them: this module loads no server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

STORES = ("memory", "lagging", "two-views")
_STEPS = 3
"""Steps of a request on a lagging store, each of which may take as long as the longest lag."""

_lags = [0]


@contextmanager
def store_choice(lag: int) -> Iterator[None]:
    """Choose the lagging store for the block, on which everything is at most `lag` iterations late."""
    _lags.append(lag)
    try:
        yield
    finally:
        _lags.pop()


def is_lagging() -> bool:
    """Return whether stores show commits late."""
    return longest_lag() > 0


def longest_lag() -> int:
    """Return how many iterations of the event loop stores may lag; 0 on the memory store."""
    return _lags[-1]


async def settle(iterations: int) -> None:
    """Let everything happen that takes so many iterations of the event loop on the memory store."""
    for _ in range(iterations * (_STEPS * longest_lag() + 1)):
        await asyncio.sleep(0)
