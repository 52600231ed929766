"""The process that runs the cluster of a data directory: recorded by `up`, read by `down`, `status` and `reset`."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.known_clusters import KnownClusters
from setpoint.client.cluster_choice import DATA_DIRECTORY, data_directory
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from setpoint.cluster.apiserver import RunningApiServer

DATA_DIR = text(
    "data-dir",
    default=DATA_DIRECTORY,
    help="Data directory of the cluster; by default it is searched for in this and the parent directories.",
)
_RECORD = "running.json"


class Running(NamedTuple):
    pid: int
    url: str
    kubeconfig: str
    nodes: int
    started: str
    """The start time, in Kubernetes' format."""
    store: str


def directory_of(call: Invocation) -> Path:
    """Return the data directory of a command: that of the flags, of the cluster of this directory, or else the
    default."""
    named = Path(call.flags.data_dir)
    if call.flags.given("data-dir"):
        return named
    found = data_directory(Path.cwd(), call.io.home)
    return found if found is not None and found.parent != Path.cwd() else named


def running_now(call: Invocation, api: RunningApiServer, nodes: int) -> Running:
    """Return the record of a server in this process."""
    started = format_time(call.io.clock.now())
    return Running(os.getpid(), api.url, str(api.kubeconfig.absolute()), nodes, started, call.flags.store)


@contextmanager
def written_down(call: Invocation, directory: Path, running: Running) -> Iterator[None]:
    """Record that the cluster of this data directory runs, while the block runs."""
    KnownClusters(call.io.environment, call.io.home).remember(directory, running.nodes, call.io.clock.now())
    record = directory / _RECORD
    record.write_text(json.dumps(running._asdict()) + "\n", encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            record.unlink()


def find_running(directory: Path) -> Running | None:
    """Return the record of the running process; None if there is none.

    A stale record is ignored: the process must be alive, and must hold the lock of its store unless that is in memory.
    """
    try:
        found: dict[str, Any] = json.loads((directory / _RECORD).read_bytes())
        running = Running(**found)
        os.kill(running.pid, 0)
    except PermissionError:
        return running
    except (OSError, ValueError, TypeError):
        return None
    return running if running.store == "memory" or is_locked(directory) else None


def none_runs(directory: Path) -> None:
    """Raise Failed, with what to do, if a process runs the cluster."""
    running = find_running(directory)
    if running is not None:
        raise Failed(
            f"a cluster is already running in {directory}, which is in use by another process ({running.pid}, at "
            f"{running.url}); `setpoint status` tells more, `setpoint down` stops it"
        )


def is_locked(directory: Path) -> bool:
    """Return whether a process has the database of this directory open."""
    try:
        lock = os.open(directory / "state.db-lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    # A terminated child of this process remains until it is waited for.
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
