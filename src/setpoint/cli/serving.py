"""Running a server from the command line: the loop, and failures to start as one sentence."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed

T = TypeVar("T")
STARTED = time.monotonic()
"""When the command line began to load: what people wait for."""


def server(run: Callable[[Call], T]) -> Callable[[Call], T]:
    """A command that is a server until it ends. Loading its parts makes nothing but things that stay: there is nothing
    to collect until it is `ready`."""

    def without_collecting(call: Call) -> T:
        thresholds, callbacks = gc.get_threshold(), tuple(gc.callbacks)
        gc.disable()
        try:
            return run(call)
        finally:
            gc.set_threshold(*thresholds)
            gc.callbacks[:] = callbacks
            gc.enable()

    return without_collecting


def ready(call: Call, text: str, stored: Callable[[], int] = lambda: 0) -> None:
    """Say that the server is up, and collect garbage from now on. Called on the event loop. `stored` returns how many
    objects the process stores."""
    # Here, because `--help` needs none of it.
    import asyncio

    from setpoint.cluster.collecting import Collecting

    Collecting(asyncio.get_running_loop(), stored).start()
    say(call, text)


def say(call: Call, text: str) -> None:
    """A server goes on, and ends in order, when nobody listens any more."""
    with suppress(BrokenPipeError):
        call.say(text)
        call.flush()


def serve(main: Callable[[], Awaitable[None]]) -> None:
    """Until `main` returns. What cannot be started is explained, and the process exits with 1."""
    # Here, because `--help` needs none of it.
    import asyncio

    import uvloop

    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.log_filter import LogFilter

    if logging.lastResort is not None:
        # What reaches the terminal where nobody has configured logging.
        logging.lastResort.addFilter(LogFilter(time.monotonic))

    async def run() -> None:
        # Told to end before it was up.
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
    """Task groups wrap what is raised inside of them, each once more."""
    return [
        message
        for error in found.exceptions
        for message in (_messages(error) if isinstance(error, BaseExceptionGroup) else [str(error)])
    ]
