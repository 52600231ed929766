"""Check the files of a store periodically while it is in use."""

from __future__ import annotations

from setpoint.meta.clock import Clock
from setpoint.store.interface import StoreError
from setpoint.store.sqlite import SqliteStore

CHECK_INTERVAL = 3.0
"""Seconds between checks. Writes between a loss and the check that finds it are acknowledged and lost."""


async def check_forever(store: SqliteStore, clock: Clock, interval: float = CHECK_INTERVAL) -> None:
    """Check until cancelled, or until the store has failed: every later call of the store then reports the failure."""
    while True:
        await clock.sleep(interval)
        try:
            await store.check()
        except StoreError:
            return
