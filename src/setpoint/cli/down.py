"""`setpoint down`: stop the cluster of a data directory. Its data is retained."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import duration
from setpoint.cli.invocation import Invocation
from setpoint.cli.real_node import read_real_node
from setpoint.cli.running import DATA_DIR, Running, directory_of, find_process, gone, has_member

_POLL_INTERVAL = 0.02


async def run(invocation: Invocation) -> None:
    invocation.no_arguments()
    directory = directory_of(invocation)
    running = find_process(directory)
    if running is None:
        invocation.print(f"No cluster is running in {directory}.")
        return
    node = read_real_node(directory)
    await end(invocation, running, invocation.flags.timeout)
    if node is None or not node.runs:
        invocation.print(f"The cluster in {directory} is stopped{_how_to_start(running, directory)}")
        return
    await wait_until_gone(invocation, node.pid, invocation.flags.timeout)
    invocation.print(
        f"The cluster in {directory} and the agent of the node {node.name} are stopped. "
        "`sudo setpoint up --real` starts them again with their data; Pods continue meanwhile."
    )


def _how_to_start(running: Running, directory: Path) -> str:
    if running.store == "memory":
        return "; its objects were in memory only."
    if running.store == "etcd" and not has_member(directory):
        return ". `setpoint up` starts it again with its data, with the same --etcd-servers."
    return ". `setpoint up` starts it again with its data."


async def end(invocation: Invocation, running: Running, timeout: float) -> None:
    """Stop a cluster and return when its process has exited. Raise Failed."""
    try:
        os.kill(running.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Failed(f"the cluster's process {running.pid} belongs to another user") from None
    await wait_until_gone(invocation, running.pid, timeout)


async def wait_until_gone(invocation: Invocation, pid: int, timeout: float) -> None:
    """Return when a process has exited. Raise Failed."""
    clock = invocation.io.clock
    until = clock.monotonic() + timeout
    while not gone(pid):
        if clock.monotonic() > until:
            raise Failed(f"the cluster's process {pid} is still there; `kill -9 {pid}` ends it by force")
        await clock.sleep(_POLL_INTERVAL)


COMMAND = Command(
    "Stop the cluster of a data directory; what it holds stays",
    run,
    (DATA_DIR, duration("timeout", default=30.0, help="How long to wait for it to stop.")),
    connects=False,
)
