"""End processes that this one has started."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def stop_process(process: asyncio.subprocess.Process, grace_period: float) -> int:
    """Ask the process to end, kill it if it has not ended after `grace_period` seconds, and return its exit code."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(grace_period):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return process.returncode or 0
