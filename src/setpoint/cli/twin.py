"""`setpoint twin`: a simulated copy of any Kubernetes cluster, made with read access alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.flags import number, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.serving import print_line, ready, serve, server
from setpoint.cli.simulating import ONLY, SECRETS, SNAPSHOT, copy_of, in_virtual_time
from setpoint.view.plan import event_lines, problem_lines

if TYPE_CHECKING:
    from setpoint.cluster.cluster_copy import ClusterCopy
    from setpoint.cluster.twin import FirstLook

_MAX_LINES = 40


@server
def run(invocation: Invocation) -> None:
    # Imported here because `--help` does not need it.
    from setpoint.cluster.apiserver import serve_until
    from setpoint.cluster.signals import stop_on_signals
    from setpoint.cluster.twin import first_look, twin_cluster

    invocation.no_arguments()
    flags = invocation.flags

    async def main() -> None:
        stop = stop_on_signals()
        try:
            copy = await copy_of(invocation)
        finally:
            await invocation.close()
        if flags.save:
            _save(invocation, copy, Path(flags.save))
        version = copy.kubernetes or "unknown"
        print_line(invocation, f"Copied {len(copy.objects)} objects at revision {copy.revision}; Kubernetes {version}.")
        report(invocation, copy, await in_virtual_time(lambda interrupted: first_look(copy, interrupted)))
        if flags.report_only:
            return
        async with twin_cluster(copy, Path(flags.data_dir), flags.port, flags.bind_address) as running:
            line = f"The twin is served at {running.url}: export KUBECONFIG={running.kubeconfig}"
            ready(invocation, line, running.api.resources.count)
            await serve_until(stop, running.api)

    serve(main)


def _save(invocation: Invocation, copy: ClusterCopy, path: Path) -> None:
    from setpoint.cluster.snapshot_file import SnapshotWriter

    writer = SnapshotWriter(path, copy.header(invocation.io.clock.now()))
    try:
        for item in copy.stored():
            writer.add(item)
        writer.finish()
    finally:
        writer.abandon()


def report(invocation: Invocation, copy: ClusterCopy, look: FirstLook) -> None:
    """Print what is not as in the original."""
    lines = []
    if copy.isolated().left_out:
        lines += ["Left out:", *(f"  {each}" for each in copy.isolated().left_out)]
    if look.added:
        lines += [f"Created or completed by this server for itself: {len(look.added)} objects, such as {look.added[0]}"]
    if look.events:
        lines.append("At the first look, the loops changed:")
        events = event_lines(look.events, "")
        lines += [f"  {line}" for _, line in events[:_MAX_LINES]]
        if len(events) > _MAX_LINES:
            lines.append(f"  ... and {len(events) - _MAX_LINES} more")
    else:
        lines.append("The twin is at rest: at the first look, the loops changed nothing.")
    if not look.settled:
        lines.append("Its loops did not settle within half an hour.")
    if look.unfinished:
        lines += ["Not as desired:", *(f"  {each}" for each in problem_lines(look.unfinished, "")[:_MAX_LINES])]
    lines.append("Custom controllers do not run, and nodes are simulated.")
    for line in lines:
        print_line(invocation, line)


COMMAND = Command(
    "Run a simulated copy of any Kubernetes cluster, made with get and list requests alone",
    run,
    (
        ONLY,
        SECRETS,
        SNAPSHOT,
        text("save", help="Also write the copied objects to this file."),
        switch("report-only", help="Say what would be copied and what its loops would change, and end."),
        text("data-dir", default=".twin", help="Directory of the certificates and the kubeconfig of the twin."),
        number("port", default=0, help="Port of the twin's API server; 0 is a free one."),
        text("bind-address", default="127.0.0.1", help="Address of the twin's API server."),
    ),
    about="""The copy keeps names, uids, labels and status. Every node is simulated with the capacity, labels and taints
of the real one, and its Pods continue to run. Webhooks and aggregated APIs are left out, custom controllers do not run.
Objects are in memory: when the command ends, the twin is gone. Nothing is written to the original.""",
    examples="""
    # A twin of the cluster of the current context
    setpoint twin

    # Of two namespaces, with the values of Secrets, also as a file
    setpoint twin --only shop --only payment --secrets copy --save shop.setpoint
    """,
)
