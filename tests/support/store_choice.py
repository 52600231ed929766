"""Which store the servers and clusters of a test work on. `chosen_stores.py` makes them: this module loads no server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

STORES = ("memory", "lagging", "two-views")
_ITERATIONS_WITH_LAG = 30
"""Iterations of the event loop on the lagging store for each one on the memory store."""

_chosen = ["memory"]


@contextmanager
def store_choice(kind: str) -> Iterator[None]:
    """Choose a kind of store for the block."""
    assert kind in STORES, kind
    _chosen.append(kind)
    try:
        yield
    finally:
        _chosen.pop()


def is_lagging() -> bool:
    """Return whether stores show commits late."""
    return _chosen[-1] != "memory"


async def settle(iterations: int) -> None:
    """Let everything happen that takes so many iterations of the event loop on the memory store."""
    for _ in range(iterations * _ITERATIONS_WITH_LAG if is_lagging() else iterations):
        await asyncio.sleep(0)
