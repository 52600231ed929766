"""`setpoint scheduler`: the scheduler alone, against any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.component_options import REMOTE_FLAGS, endpoint_config, endpoint_flags, remote_config
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import ready, serve, server


@server
def run(call: Invocation) -> None:
    from setpoint.cluster.remote import remote_parts, scheduler_configuration
    from setpoint.cluster.stopping import catch_signals

    call.no_arguments()

    async def main() -> None:
        stop = catch_signals()
        configuration = scheduler_configuration(Path(call.flags.config) if call.flags.config else None)
        async with (
            remote_parts(remote_config(call.flags, "scheduler")) as parts,
            parts.scheduler(configuration) as elected,
            parts.door(endpoint_config(call.flags), elected),
        ):
            ready(call, f"setpoint scheduler: {elected.state}")
            await stop.wait()

    serve(main)


COMMAND = Command(
    "Run the scheduler alone, against the server of a kubeconfig",
    run,
    (*REMOTE_FLAGS, *endpoint_flags(10259), text("config", help="A KubeSchedulerConfiguration.")),
    connects=False,
)
