"""Which process runs the cluster of a data directory: written down by `up`, read by `down`, `status` and `reset`."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.known_clusters import KnownClusters
from setpoint.client.cluster_choice import DATA_DIRECTORY, data_directory
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from setpoint.cluster.apiserver import RunningApiServer

DATA_DIR = text(
    "data-dir",
    default=DATA_DIRECTORY,
    help="Where the cluster lives; without it also looked for in parent directories.",
)
_RECORD = "running.json"


class Running(NamedTuple):
    pid: int
    url: str
    kubeconfig: str
    nodes: int
    started: str
    """When, as Kubernetes writes times."""
    store: str


def directory_of(call: Call) -> Path:
    """Return the data directory that a command is about: the one that is named, else that of the cluster of this
    directory, else where it would be."""
    named = Path(call.flags.data_dir)
    if call.flags.given("data-dir"):
        return named
    found = data_directory(Path.cwd(), call.around.home)
    return found if found is not None and found.parent != Path.cwd() else named


def running_now(call: Call, api: RunningApiServer, nodes: int) -> Running:
    """Return what is to be written down of a server in this process."""
    started = format_time(call.around.clock.now())
    return Running(os.getpid(), api.url, str(api.kubeconfig.absolute()), nodes, started, call.flags.store)


@contextmanager
def written_down(call: Call, directory: Path, running: Running) -> Iterator[None]:
    """Say that the cluster of this data directory runs, for as long as the block does."""
    KnownClusters(call.around.environment, call.around.home).remember(directory, running.nodes, call.around.clock.now())
    record = directory / _RECORD
    record.write_text(json.dumps(running._asdict()) + "\n", encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            record.unlink()


def find_running(directory: Path) -> Running | None:
    """None if nobody does. A record that its process left behind when it died counts for nothing: who runs a cluster
    holds the lock of its store, unless that is in memory, and is alive."""
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
    """Raises Failed, with what to do."""
    running = find_running(directory)
    if running is not None:
        raise Failed(
            f"a cluster is already running in {directory}, which is in use by another process ({running.pid}, at "
            f"{running.url}); `setpoint status` tells more, `setpoint down` stops it"
        )


def is_locked(directory: Path) -> bool:
    """Whether a process has the database of this directory open."""
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
    # A child of this process that has ended is there until it is asked for.
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
