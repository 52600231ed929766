"""`setpoint reset`: delete all data of a cluster."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.down import end
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.kubeconfig_merge import merged_into, remove
from setpoint.cli.running import DATA_DIR, directory_of, find_running
from setpoint.client.cluster_choice import ADMIN

_OURS = ("state.db", "identity", "pki", "admin.kubeconfig")


async def run(call: Invocation) -> None:
    call.no_arguments()
    directory = directory_of(call)
    if not _is_there(directory):
        call.print(f"There is no cluster in {directory}.")
        return
    if not call.flags.yes and not _agreed(call, directory):
        raise Failed("nothing was removed; set --yes to remove it without confirmation")
    running = find_running(directory)
    if running is not None:
        await end(call, running, 30.0)
    for line in _forget(call, directory / ADMIN):
        call.print(line)
    shutil.rmtree(directory)
    call.print(f"The cluster in {directory} and all its data were removed.")


def _forget(call: Invocation, kubeconfig: Path) -> Iterator[str]:
    """Remove the cluster from the kubeconfigs it was merged into: a current context must not point nowhere."""
    listed = [Path(path) for path in call.io.environment.get("KUBECONFIG", "").split(os.pathsep) if path]
    for target in dict.fromkeys([*merged_into(kubeconfig), call.io.home / ".kube" / "config", *listed]):
        if target.exists() and kubeconfig.exists() and target.samefile(kubeconfig):
            continue
        try:
            names = remove(kubeconfig, target)
        except (Failed, OSError, ValueError) as error:
            yield f"{target} was left as it is: {error}"
            continue
        for name in names:
            yield f"The context {name} was removed from {target}."


def _is_there(directory: Path) -> bool:
    """Return whether the data directory exists. Raise Failed for any other directory, so that no other files are
    deleted."""
    if directory.exists() and not any((directory / name).exists() for name in _OURS):
        raise Failed(f"{directory} does not look like the data directory of a cluster; nothing was removed")
    return directory.exists()


def _agreed(call: Invocation, directory: Path) -> bool:
    if not call.io.in_is_terminal:
        return False
    call.print(f"This removes the cluster in {directory} with all its objects and keys. Type yes to continue: ", end="")
    call.flush()
    return call.io.stdin.readline().strip().lower() in (b"yes", b"y")


COMMAND = Command(
    "Stop the cluster of a data directory and remove everything that it holds",
    run,
    (DATA_DIR, switch("yes", "y", help="Do not ask for confirmation.")),
    connects=False,
)
