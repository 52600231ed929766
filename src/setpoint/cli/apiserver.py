"""`setpoint apiserver`: the API server alone, with upstream's flags."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import running_now, written_down
from setpoint.cli.server_options import NAME, SERVER_FLAGS, server_config
from setpoint.cli.serving import STARTED, ready, serve, server

if TYPE_CHECKING:
    import asyncio

    from setpoint.cluster.apiserver import RunningApiServer


@server
def run(call: Invocation) -> None:
    from setpoint.cluster.apiserver import apiserver
    from setpoint.cluster.component_files import component_files
    from setpoint.cluster.component_logs import API_SERVER
    from setpoint.cluster.private_files import make_private
    from setpoint.cluster.stopping import catch_signals
    from setpoint.system import SystemClock

    call.no_arguments()
    config = server_config(call.flags, Path(call.flags.data_dir))

    async def main() -> None:
        stop = catch_signals()
        make_private(config.data_dir)
        with component_files(config.data_dir, API_SERVER, SystemClock()):
            async with apiserver(config, alone=True) as running:
                await _serve(call, config.data_dir, running, stop)

    serve(main)


async def _serve(call: Invocation, directory: Path, running: RunningApiServer, stop: asyncio.Event) -> None:
    from setpoint.cluster.apiserver import until

    with written_down(call, directory, running_now(call, running, 0)):
        took = time.monotonic() - STARTED
        message = f"setpoint apiserver ready at {running.url} in {took:.2f} s (kubeconfig {running.kubeconfig})"
        ready(call, message, running.api.count)
        await until(stop, running.api)


COMMAND = Command(
    "Run the API server alone, without controllers, scheduler and nodes",
    run,
    (text("data-dir", required=True, help="Where state, certificates and the kubeconfig live."), NAME, *SERVER_FLAGS),
    connects=False,
)
