"""`setpoint kubeconfig`: print the kubeconfig of a cluster's data directory, or merge it into another file."""

from __future__ import annotations

import json
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of


def run(invocation: Invocation) -> None:
    invocation.no_arguments()
    directory = directory_of(invocation)
    path = directory / "admin.kubeconfig"
    try:
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Failed(f"there is no cluster in {directory}; `setpoint up` creates one") from None
    if invocation.flags.merge:
        from setpoint.cli.kubeconfig_files import merge

        target = Path(invocation.flags.into) if invocation.flags.into else invocation.io.home / ".kube" / "config"
        name = invocation.flags.name or str(json.loads(content)["current-context"])
        merge(path, target, name, replace=bool(invocation.flags.name))
        invocation.print(f"The context {name} was merged into {target} and is the current one.")
    else:
        invocation.print(content, end="")


COMMAND = Command(
    "Print the administrator's kubeconfig of a cluster, or merge it into another",
    run,
    (
        DATA_DIR,
        switch("merge", help="Merge it into ~/.kube/config as a new context, and make that the current one."),
        text("into", help="Merge into this file instead."),
        text("name", help="Name of the context, cluster and user in that file; by default that of the cluster."),
    ),
    connects=False,
    examples="""
    # For other programs, in this shell
    setpoint kubeconfig > cluster.yaml

    # For every shell, beside the clusters that are there
    setpoint kubeconfig --merge
    """,
)
