"""Work on large inputs, done beside the event loop.

Parsing, decoding, patching and validating an object takes time in proportion to its size: about 10 ms for 16 KiB at
worst, seconds for 3 MiB. While the loop does that, it serves nobody else. So these steps are pure functions, and where
the input is large they are called on a thread. Python lets the threads take turns of half a millisecond: the loop goes
on, a little slower. See docs/decisions/worker-threads.md.

Rules for what is called here: it reads shared objects and never changes them; what it changes belongs to the request;
it touches neither caches nor the store nor the loop.
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
"""Bytes of input from which on work is not done on the loop."""
_HUGE: Final = 256 * 1024
"""Bytes from which on work has a thread of its own, so that what takes seconds does not delay what takes less."""
EXPRESSIONS: Final = 8
"""How many times as long it takes to compile a schema or an expression as to read other input of the same size."""
_SWITCH_INTERVAL: Final = 0.0005
"""Seconds that a thread may keep the others waiting."""


class Worker:
    def __init__(self) -> None:
        self._uses_threads = False
        self._threads: dict[bool, ThreadPoolExecutor] = {}

    def use_threads(self) -> None:
        """From now on large inputs are worked on by threads. Without this all is done inline, as in virtual time."""
        self._uses_threads = True

    async def run(self, size: int, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` and return its result, or raise what it raises; `size` is that of its input, in bytes.

        If the caller is cancelled, the function still runs to its end, and its result is dropped."""
        if size < LARGE or not self._uses_threads:
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread(size >= _HUGE), lambda: function(*args, **kwargs))

    def _thread(self, huge: bool) -> ThreadPoolExecutor:
        thread = self._threads.get(huge)
        if thread is None:
            # Loaded with the first large input: most servers never see one.
            from concurrent.futures import ThreadPoolExecutor

            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
            thread = self._threads[huge] = ThreadPoolExecutor(1, "setpoint-worker")
        return thread

    def stop(self) -> None:
        """Work that has not begun is dropped."""
        for thread in self._threads.values():
            thread.shutdown(wait=False, cancel_futures=True)
        self._threads.clear()
