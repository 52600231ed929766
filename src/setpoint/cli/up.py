"""`setpoint up`: a whole cluster, in this process until Ctrl-C, or in a background process."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.flags import number, switch, text
from setpoint.cli.fleet_file import FLEET, IMAGES, PACE, simulation_of
from setpoint.cli.invocation import Invocation
from setpoint.cli.program_name import program_name
from setpoint.cli.running import DATA_DIR, directory_of, none_runs, running_now, written_down
from setpoint.cli.server_options import NAME, SERVER_FLAGS, server_config
from setpoint.cli.serving import STARTED, print_line, ready, serve, server
from setpoint.client.cluster_choice import data_directory


@server
def run(call: Invocation) -> int | None:
    call.no_arguments()
    wanted = simulation_of(call)
    directory = directory_of(call)
    none_runs(directory)
    if call.flags.detach:
        from setpoint.cli.up_detached import start_detached

        return start_detached(call)
    from setpoint.cluster.allinone import cluster
    from setpoint.cluster.apiserver import until
    from setpoint.cluster.stopping import catch_signals

    nodes = wanted.nodes
    config = server_config(call.flags, directory)
    progress = _Progress(call)

    async def main() -> None:
        stop = catch_signals()
        async with cluster(config, nodes=wanted, step=progress.step) as running:
            progress.clear()
            api = running.apiserver
            _hand_over(call, api.kubeconfig)
            with written_down(call, directory, running_now(call, running.apiserver, nodes)):
                ready(call, welcome(call, api.url, api.kubeconfig, nodes, time.monotonic() - STARTED), api.api.count)
                if call.io.out_is_terminal and not call.flags.quiet:
                    from setpoint.cli.up_log import print_events

                    async with print_events(call, running):
                        await until(stop, api.api)
                else:
                    await until(stop, api.api)
            print_line(call, "Stopping.")

    try:
        serve(main)
    finally:
        progress.clear()
    return None


class _Progress:
    """A progress line on a terminal that shows what `up` waits for."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self._shown = call.io.out_is_terminal and not call.flags.quiet
        self._dirty = False

    def step(self, what: str) -> None:
        if self._shown:
            self._call.print(f"\r\x1b[KStarting: {what}", end="")
            self._call.flush()
            self._dirty = True

    def clear(self) -> None:
        if self._dirty:
            self._call.print("\r\x1b[K", end="")
            self._call.flush()
            self._dirty = False


def _hand_over(call: Invocation, kubeconfig: Path) -> None:
    """Write a copy of the kubeconfig if one was requested."""
    if call.flags.kubeconfig:
        from setpoint.cli.private_file import write_privately

        write_privately(Path(call.flags.kubeconfig), kubeconfig.read_bytes())


def welcome(call: Invocation, url: str, kubeconfig: Path, nodes: int, took: float) -> str:
    """Return the text that shows the cluster and the next commands to try."""
    at_hand = directory_of(call).absolute() == data_directory(Path.cwd(), call.io.home)
    chosen = call.io.environment.get("KUBECONFIG")
    shown = call.flags.kubeconfig or str(kubeconfig)
    export = f"export KUBECONFIG={shlex.quote(str(Path(shown).absolute()))}"
    setpoint = program_name(call.io.environment, sys.argv)
    detached = call.flags.detach
    lines = [
        f"A cluster with {nodes} {'node' if nodes == 1 else 'nodes'} is ready at {url} after {took:.2f} s.",
        f"The kubeconfig is {shown}. Try{'' if detached else ', in another terminal'}:",
        "",
        *([] if at_hand and not chosen else [f"  {export}"]),
        f"  {setpoint} get nodes",
        f"  {setpoint} create deployment hello --image=nginx --replicas=3",
        f"  {setpoint} get pods --watch",
        "",
        f"kubectl and everything else that speaks Kubernetes work with `{export}`.",
        _how_to_stop(call, setpoint, at_hand),
    ]
    return "\n".join(lines)


def _how_to_stop(call: Invocation, setpoint: str, at_hand: bool) -> str:
    forgets = call.flags.store == "memory"
    if not call.flags.detach:
        return "Ctrl-C stops it" + (
            "; its objects are in memory only." if forgets else "; the same command goes on where it left off."
        )
    where = "" if at_hand else f" --data-dir {shlex.quote(call.flags.data_dir)}"
    again = "; its objects are in memory only." if forgets else f"; `{setpoint} up{where}` goes on where it left off."
    return f"`{setpoint} down{where}` stops it{again}"


COMMAND = Command(
    "Run a whole cluster: API server, controllers, scheduler and simulated nodes",
    run,
    (
        number("nodes", default=3, least=0, most=50_000, help="Simulated nodes."),
        DATA_DIR._replace(help="Data directory of the cluster; a later `setpoint up` continues with it."),
        NAME,
        text("kubeconfig", help="Also write the administrator's kubeconfig to this file."),
        switch(
            "detach", "d", help="Return when the cluster is ready; it runs in the background until `setpoint down`."
        ),
        switch("quiet", "q", help="Print the summary only, and no events of the control loops."),
        PACE,
        IMAGES,
        FLEET,
        *SERVER_FLAGS,
    ),
    connects=False,
    examples="""
    # A cluster with three nodes, which lives in .setpoint
    setpoint up

    # In the background, and away again
    setpoint up --detach
    setpoint down

    # Another one beside it, with a thousand nodes
    setpoint up --nodes 1000 --data-dir /tmp/big --port 7443
    """,
)
