"""`setpoint scheduler`: the scheduler alone, against any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.component_options import REMOTE_FLAGS, endpoint_config, endpoint_flags, remote_config
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import ready, serve, server


@server
def run(invocation: Invocation) -> None:
    from setpoint.cluster.remote import remote_components, scheduler_configuration
    from setpoint.cluster.signals import stop_on_signals

    invocation.no_arguments()

    async def main() -> None:
        stop = stop_on_signals()
        configuration = scheduler_configuration(Path(invocation.flags.config) if invocation.flags.config else None)
        async with (
            remote_components(remote_config(invocation.flags, "scheduler")) as components,
            components.scheduler(configuration) as elected,
            components.server(endpoint_config(invocation.flags), elected),
        ):
            ready(invocation, f"setpoint scheduler: {elected.state}")
            await stop.wait()

    serve(main)


COMMAND = Command(
    "Run the scheduler alone, against the server of a kubeconfig",
    run,
    (*REMOTE_FLAGS, *endpoint_flags(10259), text("config", help="A KubeSchedulerConfiguration.")),
    connects=False,
)
