"""`setpoint apiserver`: the API server alone, with upstream's flags."""

from __future__ import annotations

import time
from pathlib import Path

import click

from setpoint.cli.clicked import clicked
from setpoint.cli.server_options import server_options
from setpoint.cli.serving import STARTED, say, serve


@click.command(context_settings={"show_default": True})
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(path_type=Path),
    help="Where state, certificates and the kubeconfig live.",
)
@server_options
def command(**flags: object) -> None:
    """Run the API server alone, without controllers, scheduler and nodes."""
    from setpoint.cluster.apiserver import apiserver, catch_signals, until
    from setpoint.cluster.config import ApiServerConfig

    async def main() -> None:
        stop = catch_signals()
        async with apiserver(ApiServerConfig(**flags), alone=True) as running:  # type: ignore[arg-type]
            took = time.monotonic() - STARTED
            say(f"setpoint apiserver ready at {running.url} in {took:.2f} s (kubeconfig {running.kubeconfig})")
            await until(stop, running.api)

    serve(main)


COMMAND = clicked(command)
