"""Runs blocking calls of the agent, such as file access, mounts and system calls, in a bounded number of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_THREADS = 8


class BlockingPool:
    """A bounded pool of threads. A disk that does not answer blocks its threads, and never the event loop."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="setpoint-node")

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of a blocking call. A call that has started runs to its end, even if this is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Start no further calls; does not wait for those that run."""
        self._executor.shutdown(wait=False, cancel_futures=True)
