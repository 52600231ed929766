"""`setpoint list`: the clusters of this machine, running or not."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import Known, KnownClusters, find_running
from setpoint.cli.tabwriter import align
from setpoint.client.cluster_choice import ADMIN
from setpoint.meta.times import human_duration

_COLUMNS = ("NAME", "DIRECTORY", "ADDRESS", "STATE", "NODES", "AGE")


def run(invocation: Invocation) -> None:
    invocation.no_arguments()
    if invocation.flags.output not in ("", "json", "name"):
        raise Failed(f"unknown output format {invocation.flags.output!r}: use json or name")
    clusters = KnownClusters(invocation.io.environment, invocation.io.home).all()
    now = invocation.io.clock.now()
    rows = [_row(known, now) for known in clusters]
    if invocation.flags.output == "json":
        invocation.print(
            json.dumps([{key.lower(): value for key, value in zip(_COLUMNS, row)} for row in rows], indent=2)
        )
    elif invocation.flags.output == "name":
        for row in rows:
            invocation.print(row[0])
    elif rows:
        invocation.print(align("\n".join("\t".join(row) for row in (_COLUMNS, *rows)), least=6, padding=3))
    else:
        invocation.print("There are no clusters on this machine: `setpoint up` starts one.")


def _row(known: Known, now: datetime) -> tuple[str, ...]:
    running = find_running(known.directory)
    name, address = _named(known.directory / ADMIN)
    return (
        name,
        str(known.directory),
        running.url if running is not None else address,
        "Running" if running is not None else "Stopped",
        str(running.nodes if running is not None else known.nodes),
        human_duration((now - known.created).total_seconds()),
    )


def _named(kubeconfig: Path) -> tuple[str, str]:
    """Return the name of the cluster and its last address."""
    try:
        found = json.loads(kubeconfig.read_bytes())
        return str(found["current-context"]), str(found["clusters"][0]["cluster"]["server"])
    except (OSError, ValueError, LookupError, TypeError):
        return "", ""


COMMAND = Command(
    "List the clusters of this machine: name, directory, address, state, nodes, age",
    run,
    (text("output", "o", choices=("json", "name"), help="json or name instead of a table."),),
    connects=False,
    aliases=("ls",),
    about="""
    Shows the clusters that this user has started on this machine and whose data directories are still there. AGE is
    the time since a cluster was first started. In the directory of a cluster all commands act on it; elsewhere say
    --kubeconfig DIRECTORY/admin.kubeconfig.
    """,
)
