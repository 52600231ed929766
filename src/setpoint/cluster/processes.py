"""Start and end child processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with_parent() -> Callable[[], None]:
    """Return a function for a child that makes the kernel kill it when this process dies, however it dies: nothing is
    left that would block the next start."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call
            os._exit(1)

    return arrange


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
