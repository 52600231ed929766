"""`setpoint apiserver`: the API server alone, with upstream's flags."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.flags import about, number, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import process_recorded, running_now, written_down
from setpoint.cli.server_options import NAME, SERVER_FLAGS, server_config
from setpoint.cli.serving import STARTED, ready, serve, server

if TYPE_CHECKING:
    import asyncio

    from setpoint.cluster.apiserver import RunningApiServer
    from setpoint.cluster.config import ApiServerConfig


@server
def run(invocation: Invocation) -> None:
    from setpoint.cluster.apiserver import apiserver
    from setpoint.cluster.component_files import component_files
    from setpoint.cluster.component_logs import API_SERVER
    from setpoint.cluster.private_files import ensure_private_directory
    from setpoint.cluster.signals import stop_on_signals
    from setpoint.system import SystemClock

    invocation.no_arguments()
    config = server_config(invocation.flags, Path(invocation.flags.data_dir))
    config.workers = invocation.flags.workers

    async def main() -> None:
        stop = stop_on_signals()
        ensure_private_directory(config.data_dir)
        with component_files(config.data_dir, API_SERVER, SystemClock()):
            async with apiserver(config, alone=True) as running:
                await _serve(invocation, config, running, stop)

    with process_recorded(config.data_dir, config.store):
        serve(main)


async def _serve(
    invocation: Invocation, config: ApiServerConfig, running: RunningApiServer, stop: asyncio.Event
) -> None:
    from setpoint.cluster.apiserver import serve_until

    with written_down(invocation, config.data_dir, running_now(invocation, running, 0, config.store)):
        took = time.monotonic() - STARTED
        message = f"setpoint apiserver ready at {running.url} in {took:.2f} s (kubeconfig {running.kubeconfig})"
        ready(invocation, message, running.api.resources.count)
        await serve_until(stop, running.api)


@server
def run_worker(invocation: Invocation) -> None:
    """Serve requests until SIGTERM, or until the process that has started this one ends."""
    settings = sys.stdin.buffer.readline()

    async def main() -> None:
        from setpoint.cluster.api_worker import api_worker
        from setpoint.cluster.apiserver import serve_until
        from setpoint.cluster.signals import stop_on_signals

        stop = stop_on_signals()
        async with api_worker(settings) as running:
            ready(invocation, "", running.api.resources.count)
            await serve_until(stop, running.api)

    serve(main)


COMMAND = Command(
    "Run the API server alone, without controllers, scheduler and nodes",
    run,
    (
        text("data-dir", required=True, help="Where state, certificates and the kubeconfig live."),
        NAME,
        *about(
            "Serving",
            number(
                "workers",
                default=0,
                least=0,
                most=64,
                help="Processes that serve requests, to use several cores; 0 means the one that has the store.",
            ),
        ),
        *SERVER_FLAGS,
    ),
    connects=False,
)
WORKER = Command("Serve requests, as a part of `setpoint apiserver --workers`", run_worker, connects=False, hidden=True)
