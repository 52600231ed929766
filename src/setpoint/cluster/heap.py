"""Return of free memory from the heap of the process to the system."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.clock import Clock

INTERVAL = 3.0
"""Seconds between two checks. Values that are compressed are freed within that time, when the caches release them."""
_MIN_SIZE = 1 << 20
"""Bytes that must have been freed since the heap was trimmed."""


async def trim_forever(freed: Callable[[], int], trim: Callable[[], None], clock: Clock) -> None:
    """Trim the heap, until cancelled, whenever much was freed. `freed` returns the bytes that have been freed so far.

    The C library returns memory only from the end of its heap; one long-lived block there would keep everything below
    it. `trim` takes about a millisecond for 8 MiB."""
    trimmed = seen = freed()
    while True:
        await clock.sleep(INTERVAL)
        before, seen = seen, freed()
        if before - trimmed >= _MIN_SIZE:
            trim()
            trimmed = before
