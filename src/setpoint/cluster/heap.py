"""Return of free memory from the heap of the process to the system."""

from __future__ import annotations

from collections.abc import Callable

from setpoint.meta.clock import Clock

INTERVAL = 3.0
"""Seconds between two checks. Values that are compressed are freed within that time, when the caches release them."""
_MIN_SIZE = 1 << 20
"""Bytes that must have been freed since the heap was trimmed."""


_MAX_SECONDS = 0.01
"""How long trimming may hold the event loop."""


async def trim_while_quick(freed: Callable[[], int], trim: Callable[[], None], clock: Clock) -> None:
    """Trim the heap whenever much was freed, until that takes too long. `freed` returns the bytes that have been freed
    so far.

    The C library returns memory only from the end of its heap; one long-lived block there would keep everything below
    it. `trim` takes about a millisecond for 8 MiB that are returned, and 30 to 50 for a fragmented heap of more than a
    gigabyte, where new values fill the free blocks anyway."""
    trimmed = seen = freed()
    took = 0.0
    while took <= _MAX_SECONDS:
        await clock.sleep(INTERVAL)
        before, seen = seen, freed()
        if before - trimmed >= _MIN_SIZE:
            began = clock.monotonic()
            trim()
            took = clock.monotonic() - began
            trimmed = before
