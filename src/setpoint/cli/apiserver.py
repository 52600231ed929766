"""`setpoint apiserver`: the API server alone, with upstream's flags."""

from __future__ import annotations

import time
from pathlib import Path

from setpoint.cli.call import Call
from setpoint.cli.command import Command
from setpoint.cli.flags import text
from setpoint.cli.running import running_now, written_down
from setpoint.cli.server_options import NAME, SERVER_FLAGS, server_config
from setpoint.cli.serving import STARTED, ready, serve, server


@server
def run(call: Call) -> None:
    from setpoint.cluster.apiserver import apiserver, until
    from setpoint.cluster.stopping import catch_signals

    call.no_arguments()
    config = server_config(call.flags, Path(call.flags.data_dir))

    async def main() -> None:
        stop = catch_signals()
        async with apiserver(config, alone=True) as running:
            with written_down(call, config.data_dir, running_now(call, running, 0)):
                took = time.monotonic() - STARTED
                kubeconfig = running.kubeconfig
                message = f"setpoint apiserver ready at {running.url} in {took:.2f} s (kubeconfig {kubeconfig})"
                ready(call, message, running.api.count)
                await until(stop, running.api)

    serve(main)


COMMAND = Command(
    "Run the API server alone, without controllers, scheduler and nodes",
    run,
    (text("data-dir", required=True, help="Where state, certificates and the kubeconfig live."), NAME, *SERVER_FLAGS),
    connects=False,
)
