"""`setpoint controller-manager`: the controllers alone, against any Kubernetes API server."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.component_options import (
    REMOTE_FLAGS,
    controller_flags,
    controller_settings,
    endpoint_config,
    endpoint_flags,
    remote_config,
)
from setpoint.cli.flags import switch, texts
from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import ready, serve, server


@server
def run(invocation: Invocation) -> None:
    from setpoint.cluster.remote import enabled_controllers, remote_components
    from setpoint.cluster.signals import stop_on_signals
    from setpoint.controllers.builtin import ALIASES, CONTROLLERS, GARBAGE_COLLECTOR, OFF_BY_DEFAULT

    invocation.no_arguments()

    async def main() -> None:
        stop = stop_on_signals()
        names = enabled_controllers(
            invocation.flags.controllers, [*CONTROLLERS, GARBAGE_COLLECTOR], OFF_BY_DEFAULT, ALIASES
        )
        config, settings = remote_config(invocation.flags, "controller-manager"), controller_settings(invocation.flags)
        async with (
            remote_components(config) as components,
            components.controllers(settings, names) as elected,
            components.server(endpoint_config(invocation.flags), elected),
        ):
            ready(invocation, f"setpoint controller-manager: {elected.state}, {len(names)} controllers")
            await stop.wait()

    serve(main)


COMMAND = Command(
    "Run the controllers alone, against the server of a kubeconfig",
    run,
    (
        *REMOTE_FLAGS,
        *endpoint_flags(10257),
        texts("controllers", default=("*",), help="Names; * means all, -name all but that one."),
        switch("use-service-account-credentials", help="Each controller acts as its own service account."),
        *controller_flags(),
    ),
    connects=False,
)
