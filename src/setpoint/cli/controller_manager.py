"""`setpoint controller-manager`: the controllers alone, against any Kubernetes API server."""

from __future__ import annotations

from typing import Any

import click

from setpoint.cli.clicked import clicked
from setpoint.cli.component_options import (
    boolean,
    controller_options,
    controller_settings,
    remote_config,
    remote_options,
)
from setpoint.cli.server_options import listed
from setpoint.cli.serving import say, serve


@click.command(context_settings={"show_default": True})
@remote_options
@click.option("--controllers", default="*", callback=listed, help="Names; * means all, -name all but that one.")
@boolean("--use-service-account-credentials", False, "Each controller acts as its own service account.")
@controller_options
def command(controllers: list[str], **flags: Any) -> None:
    """Run the controllers alone, against the server of a kubeconfig."""
    from setpoint.cluster.apiserver import catch_signals
    from setpoint.cluster.remote import chosen, remote_parts
    from setpoint.controllers.builtin import CONTROLLERS, GARBAGE_COLLECTOR

    async def main() -> None:
        stop = catch_signals()
        names = chosen(controllers, [*CONTROLLERS, GARBAGE_COLLECTOR])
        config, settings = remote_config(flags), controller_settings(flags)
        async with remote_parts(config) as parts, parts.controllers(settings, names) as elected:
            say(f"setpoint controller-manager: {elected.state}, {len(names)} controllers")
            await stop.wait()

    serve(main)


COMMAND = clicked(command)
