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
def run(call: Invocation) -> None:
    from setpoint.cluster.remote import chosen, remote_parts
    from setpoint.cluster.stopping import catch_signals
    from setpoint.controllers.builtin import ALIASES, CONTROLLERS, GARBAGE_COLLECTOR, OFF_BY_DEFAULT

    call.no_arguments()

    async def main() -> None:
        stop = catch_signals()
        names = chosen(call.flags.controllers, [*CONTROLLERS, GARBAGE_COLLECTOR], OFF_BY_DEFAULT, ALIASES)
        config, settings = remote_config(call.flags, "controller-manager"), controller_settings(call.flags)
        async with (
            remote_parts(config) as parts,
            parts.controllers(settings, names) as elected,
            parts.door(endpoint_config(call.flags), elected),
        ):
            ready(call, f"setpoint controller-manager: {elected.state}, {len(names)} controllers")
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
