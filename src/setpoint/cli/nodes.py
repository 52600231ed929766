"""`setpoint nodes`: simulated nodes alone, for any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path

import click

from setpoint.cli.clicked import clicked
from setpoint.cli.fleet_file import fleet_of, fleet_option
from setpoint.cli.serving import say, serve


@click.command(context_settings={"show_default": True})
@click.option("--kubeconfig", default="", help="How to reach the server.  [default: as kubectl finds it]")
@click.option("--nodes", "--count", default=3, type=click.IntRange(1, 50_000), help="How many.")
@click.option(
    "--address", default="", help="Where the API server asks for logs and the like.  [default: the machine's own]"
)
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="The port there; 0 picks one.")
@fleet_option
def command(kubeconfig: str, nodes: int, fleet: Path | None, address: str, port: int) -> None:
    """Run simulated nodes alone, for the server of a kubeconfig."""
    from setpoint.cluster.apiserver import catch_signals
    from setpoint.cluster.kubelet_door import kubelet_door
    from setpoint.cluster.remote import RemoteConfig, access_of, remote_parts
    from setpoint.cluster.system import SystemClock, outward_address

    wanted = fleet_of(fleet, nodes)
    nodes = wanted if isinstance(wanted, int) else wanted.nodes

    async def main() -> None:
        stop = catch_signals()
        door = kubelet_door(access_of(kubeconfig).ca, address or outward_address(), port, SystemClock())
        async with remote_parts(RemoteConfig(kubeconfig, leader_elect=False)) as parts, parts.fleet(wanted, door):
            say(f"setpoint nodes: {nodes} {'node is' if nodes == 1 else 'nodes are'} registered")
            await stop.wait()

    serve(main)


COMMAND = clicked(command)
