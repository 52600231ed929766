"""Running a server from the command line: the loop, and failures to start as one sentence."""

from __future__ import annotations

import gc
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
        gc.disable()
        try:
            return run(call)
        finally:
            gc.enable()

    return without_collecting


def ready(call: Call, text: str) -> None:
    """It is up, and says so.

    Objects are trees that nobody ties into cycles; the collector would walk all of them again and again for nothing.
    What is loaded by now is left out for good, and the rest is looked at when it is new, a little at a time since
    everybody waits meanwhile, and hardly ever again. It is not searched for cycles first: that takes longer than the
    few hundred objects are worth that would be found."""
    gc.freeze()
    gc.set_threshold(2_000, 10, 5_000)
    gc.enable()
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
