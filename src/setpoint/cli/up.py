"""`setpoint up`: a whole cluster in this process, until Ctrl-C."""

from __future__ import annotations

import time

from setpoint.cli.call import Call
from setpoint.cli.command import Command
from setpoint.cli.flags import number, text
from setpoint.cli.fleet_file import FLEET, fleet_of
from setpoint.cli.server_options import SERVER_FLAGS, server_config
from setpoint.cli.serving import STARTED, say, serve


def run(call: Call) -> None:
    from setpoint.cluster.allinone import cluster
    from setpoint.cluster.apiserver import catch_signals, until

    call.no_arguments()
    wanted = fleet_of(call.flags)
    nodes = wanted if isinstance(wanted, int) else wanted.nodes
    config = server_config(call.flags)

    async def main() -> None:
        stop = catch_signals()
        async with cluster(config, nodes=wanted) as running:
            server = running.apiserver
            say(
                call,
                f"A cluster with {nodes} {'node' if nodes == 1 else 'nodes'} is ready at {server.url} "
                f"after {time.monotonic() - STARTED:.2f} s.\n"
                f"The kubeconfig is {server.kubeconfig}. Try:\n\n"
                f"  export KUBECONFIG={server.kubeconfig.absolute()}\n"
                f"  kubectl get nodes\n"
                f"  kubectl run hello --image=nginx\n"
                f"  kubectl get pods --watch\n\n"
                f"Ctrl-C stops it; the same command goes on where it left off.",
            )
            await until(stop, server.api)
            say(call, "Stopping.")

    serve(main)


COMMAND = Command(
    "Run a whole cluster: API server, controllers, scheduler and simulated nodes",
    run,
    (
        number("nodes", default=3, least=0, most=50_000, help="Simulated nodes."),
        text(
            "data-dir", default=".setpoint", help="Where the cluster lives; a later `setpoint up` goes on there."
        ),
        FLEET,
        *SERVER_FLAGS,
    ),
    connects=False,
    examples="""
    # A cluster with three nodes, which lives in .setpoint
    setpoint up

    # Another one beside it, with a thousand nodes
    setpoint up --nodes 1000 --data-dir /tmp/big --port 7443
    """,
)
