"""`setpoint nodes`: simulated nodes alone, for any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path

import click

from setpoint.cli.fleet_file import fleet_of, fleet_option
from setpoint.cli.serving import say, serve


@click.command(context_settings={"show_default": True})
@click.option("--kubeconfig", default="", help="How to reach the server.  [default: as kubectl finds it]")
@click.option("--nodes", "--count", default=3, type=click.IntRange(1, 50_000), help="How many.")
@fleet_option
def command(kubeconfig: str, nodes: int, fleet: Path | None) -> None:
    """Run simulated nodes alone, for the server of a kubeconfig."""
    from setpoint.cluster.apiserver import catch_signals
    from setpoint.cluster.remote import RemoteConfig, remote_parts

    wanted = fleet_of(fleet, nodes)
    nodes = wanted if isinstance(wanted, int) else wanted.nodes

    async def main() -> None:
        stop = catch_signals()
        async with remote_parts(RemoteConfig(kubeconfig, leader_elect=False)) as parts, parts.fleet(wanted):
            say(f"setpoint nodes: {nodes} {'node is' if nodes == 1 else 'nodes are'} registered")
            await stop.wait()

    serve(main)
