"""`setpoint up`: a whole cluster in this process, until Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path

import click

from setpoint.cli.clicked import clicked
from setpoint.cli.fleet_file import fleet_of, fleet_option
from setpoint.cli.server_options import server_options
from setpoint.cli.serving import STARTED, say, serve


@click.command(context_settings={"show_default": True})
@click.option("--nodes", default=3, type=click.IntRange(0, 50_000), help="Simulated nodes.")
@click.option(
    "--data-dir",
    default=".setpoint",
    type=click.Path(path_type=Path),
    help="Where the cluster lives; a later `setpoint up` goes on from there.",
)
@fleet_option
@server_options
def command(nodes: int, fleet: Path | None, **flags: object) -> None:
    """Run a cluster: API server, controllers, scheduler and simulated nodes."""
    from setpoint.cluster.allinone import cluster
    from setpoint.cluster.apiserver import catch_signals, until
    from setpoint.cluster.config import ApiServerConfig

    wanted = fleet_of(fleet, nodes)
    nodes = wanted if isinstance(wanted, int) else wanted.nodes

    async def main() -> None:
        config = ApiServerConfig(**flags)  # type: ignore[arg-type]
        stop = catch_signals()
        async with cluster(config, nodes=wanted) as running:
            server = running.apiserver
            say(
                f"A cluster with {nodes} {'node' if nodes == 1 else 'nodes'} is ready at {server.url} "
                f"after {time.monotonic() - STARTED:.2f} s.\n"
                f"The kubeconfig is {server.kubeconfig}. Try:\n\n"
                f"  export KUBECONFIG={server.kubeconfig.absolute()}\n"
                f"  kubectl get nodes\n"
                f"  kubectl run hello --image=nginx\n"
                f"  kubectl get pods --watch\n\n"
                f"Ctrl-C stops it; the same command goes on where it left off."
            )
            await until(stop, server.api)
            say("Stopping.")

    serve(main)


COMMAND = clicked(command)
