"""Run a server from the command line: the event loop, and start-up errors as one sentence."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation

T = TypeVar("T")
STARTED = time.monotonic()
"""When the command line was loaded, to measure the start-up time."""


def server(run: Callable[[Invocation], T]) -> Callable[[Invocation], T]:
    """Decorate a command that runs a server.

    Garbage collection is disabled until it is `ready`, because everything that is loaded until then stays.
    """

    def without_collecting(invocation: Invocation) -> T:
        thresholds, callbacks = gc.get_threshold(), tuple(gc.callbacks)
        gc.disable()
        try:
            return run(invocation)
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks[:] = callbacks
            gc.enable()

    return without_collecting


def ready(invocation: Invocation, text: str, stored: Callable[[], int] = lambda: 0) -> None:
    """Report that the server is ready, and enable garbage collection. Call it on the event loop.

    An empty `text` is not printed. `stored` returns the number of objects that the process stores.
    """
    # Imported here because `--help` does not need it.
    import asyncio

    from setpoint.cluster.interpreter_gc import GarbageCollection

    GarbageCollection(asyncio.get_running_loop(), stored).start()
    if text:
        print_line(invocation, text)


def print_line(invocation: Invocation, text: str) -> None:
    """Print a line; a closed stdout does not stop the server."""
    with suppress(BrokenPipeError):
        invocation.print(text)
        invocation.flush()


def serve(main: Callable[[], Awaitable[None]]) -> None:
    """Run until `main` returns. Explain a failure to start, and exit with 1."""
    # Imported here because `--help` does not need it.
    import asyncio

    import uvloop

    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.klog import LogFilter

    if logging.lastResort is not None:
        # the default logging to the terminal
        logging.lastResort.addFilter(LogFilter(time.monotonic))

    async def run() -> None:
        # Stopped before it was ready.
        with suppress(asyncio.CancelledError):
            await main()

    refusals: list[str] = []
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except* ConfigError as found:
        refusals = _messages(found)
    if refusals:
        raise Failed(refusals[0])


def _messages(found: BaseExceptionGroup[BaseException]) -> list[str]:
    """Return the messages of nested exception groups."""
    return [
        message
        for error in found.exceptions
        for message in (_messages(error) if isinstance(error, BaseExceptionGroup) else [str(error)])
    ]
