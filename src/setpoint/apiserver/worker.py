"""Runs work on large inputs on threads.

Parsing, decoding, patching and validating an object takes time in proportion to its size: about 10 ms for 16 KiB at
worst, seconds for 3 MiB. On the event loop it would delay all other requests. These steps are therefore pure functions,
and with large inputs they run on a thread. Python switches between threads every half millisecond, so the loop
continues, a little slower. See docs/decisions/worker-threads.md.

Rules for such functions: they may read shared objects but never change them; what they change belongs to the request;
they use neither caches nor the store nor the loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

P = ParamSpec("P")
R = TypeVar("R")

LARGE: Final = 16 * 1024
"""Minimum size in bytes of input that is processed on a thread."""
_HUGE: Final = 256 * 1024
"""Minimum size in bytes of input that has a thread of its own, so that work of seconds does not delay shorter work."""
EXPRESSIONS: Final = 8
"""Cost of compiling schemas and expressions, relative to other input of the same size."""
_SWITCH_INTERVAL: Final = 0.0005
"""Interval in seconds at which threads switch."""


class Worker:
    def __init__(self, *, threads: bool = False) -> None:
        """`threads`: whether work on large inputs runs on threads; otherwise it runs inline, as in virtual time."""
        self._uses_threads = threads
        self._threads: dict[bool, ThreadPoolExecutor] = {}

    async def run(self, size: int, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` and return its result; `size` is the size of its input in bytes.

        If the caller is cancelled, the function still completes, and its result is dropped."""
        if size < LARGE or not self._uses_threads:
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread(size >= _HUGE), lambda: function(*args, **kwargs))

    def _thread(self, huge: bool) -> ThreadPoolExecutor:
        thread = self._threads.get(huge)
        if thread is None:
            # Imported with the first large input: most servers never get one.
            from concurrent.futures import ThreadPoolExecutor

            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
            thread = self._threads[huge] = ThreadPoolExecutor(1, "setpoint-worker")
        return thread

    def stop(self) -> None:
        """Drop all work that has not started."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
        self._threads.clear()
