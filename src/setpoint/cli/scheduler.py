"""`setpoint scheduler`: the scheduler alone, against any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from setpoint.cli.clicked import clicked
from setpoint.cli.component_options import remote_config, remote_options
from setpoint.cli.serving import say, serve


@click.command(context_settings={"show_default": True})
@remote_options
@click.option(
    "--config", type=click.Path(path_type=Path), default=None, help="A KubeSchedulerConfiguration.", show_default=False
)
def command(config: Path | None, **flags: Any) -> None:
    """Run the scheduler alone, against the server of a kubeconfig."""
    from setpoint.cluster.apiserver import catch_signals
    from setpoint.cluster.remote import remote_parts, scheduler_configuration

    async def main() -> None:
        stop = catch_signals()
        configuration = scheduler_configuration(config)
        async with remote_parts(remote_config(flags)) as parts, parts.scheduler(configuration) as elected:
            say(f"setpoint scheduler: {elected.state}")
            await stop.wait()

    serve(main)


COMMAND = clicked(command)
