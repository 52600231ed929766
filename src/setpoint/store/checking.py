"""Looks after the files of a store while it is in use."""

from __future__ import annotations

from setpoint.meta.clock import Clock
from setpoint.store.interface import StoreError
from setpoint.store.sqlite import SqliteStore

CHECK_EVERY = 3.0
"""Seconds: what is written between a loss and the check that finds it is acknowledged and lost."""


async def check_forever(store: SqliteStore, clock: Clock, interval: float = CHECK_EVERY) -> None:
    """Run until cancelled, or until the store has failed: it then says so itself on every call."""
    while True:
        await clock.sleep(interval)
        try:
            await store.check()
        except StoreError:
            return
