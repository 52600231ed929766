"""`setpoint nodes`: simulated nodes alone, for any Kubernetes API server; subcommands control them."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.flags import number, text
from setpoint.cli.fleet_file import FLEET, fleet_of
from setpoint.cli.invocation import Invocation
from setpoint.cli.nodes_control import CHILDREN
from setpoint.cli.serving import ready, serve, server


@server
def run(call: Invocation) -> None:
    import asyncio
    from functools import partial

    from setpoint.cluster.component import Component
    from setpoint.cluster.kubelet_door import kubelet_door
    from setpoint.cluster.remote import RemoteConfig, access_of, component_pods, data_directory_of, remote_parts
    from setpoint.cluster.stopping import catch_signals
    from setpoint.system import SystemClock, outward_address

    call.no_arguments()
    flags = call.flags
    wanted = fleet_of(flags)
    nodes = wanted if isinstance(wanted, int) else wanted.nodes

    config = RemoteConfig(flags.kubeconfig, "node-fleet", leader_elect=False)

    async def main() -> None:
        stop = catch_signals()
        async with remote_parts(config) as parts:
            await parts.speak_for_nodes()
            address = flags.address or outward_address()
            door = kubelet_door(access_of(config).ca, address, flags.port, SystemClock(), parts.access)
            directory = data_directory_of(config)
            if directory is not None:
                door = component_pods(directory, door, SystemClock())
            start = partial(parts.fleet, wanted, door, None if directory is not None else ())
            fleet = Component("fleet", start, parts.supervisor.restarts("nodes"))
            async with asyncio.TaskGroup() as tasks:
                await fleet.start(tasks)
                ready(call, f"setpoint nodes: {nodes} {'node is' if nodes == 1 else 'nodes are'} registered")
                await stop.wait()
                await fleet.stop()

    serve(main)


COMMAND = Command(
    "Run simulated nodes alone, for the server of a kubeconfig; or add, stop, start, partition and remove some",
    run,
    (
        text("kubeconfig", help="Kubeconfig of the server; by default $KUBECONFIG, or the cluster of this directory."),
        number("nodes", default=3, least=0, most=50_000, alias=("count",), help="Number of simulated nodes."),
        text("address", help="Address at which the API server reaches the nodes; by default the machine's own."),
        number("port", least=0, most=65535, help="The port of that address; 0 picks a free one."),
        FLEET,
    ),
    children=CHILDREN,
    connects=False,
)
