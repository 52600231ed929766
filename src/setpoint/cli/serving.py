"""Running a server from the command line: the loop, and failures to start as one sentence."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable

import click

STARTED = time.monotonic()
"""When the command line began to load: what people wait for."""


def serve(main: Callable[[], Awaitable[None]]) -> None:
    """Until `main` returns. What cannot be started is explained, and the process exits with 1."""
    import asyncio

    import uvloop

    from setpoint.cluster.config import ConfigError

    async def run() -> None:
        await main()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except ConfigError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
