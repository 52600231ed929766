"""The clusters of this machine and their processes: recorded by `up`, read by `down`, `status`, `list` and others."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from setpoint.cli.failures import Failed
from setpoint.cli.flags import text
from setpoint.cli.invocation import Invocation
from setpoint.cli.private_file import write_privately
from setpoint.client.cluster_choice import DATA_DIRECTORY, data_directory
from setpoint.meta.times import format_time, parse_time
from setpoint.system import is_locked

if TYPE_CHECKING:
    from setpoint.cluster.apiserver import RunningApiServer


_MAX = 1000
"""The maximum number of clusters; the least recently started are removed first."""


class Known(NamedTuple):
    directory: Path
    created: datetime
    """When the cluster was first started."""
    nodes: int
    """The number of simulated nodes when it was last started."""


class KnownClusters:
    def __init__(self, environment: Mapping[str, str], home: Path) -> None:
        state = environment.get("XDG_STATE_HOME") or ""
        base = Path(state) if os.path.isabs(state) else home / ".local" / "state"
        self._folder = base / "setpoint" / "clusters"

    def remember(self, directory: Path, nodes: int, now: datetime) -> None:
        """Record a cluster that was started. A home directory that cannot be written to is not an error."""
        directory = directory.resolve()
        path = self._folder / f"{hashlib.sha256(os.fsencode(directory)).hexdigest()[:32]}.json"
        known = _read(path)
        created = known.created if known is not None and known.directory == directory else now
        entry = {"directory": str(directory), "created": format_time(created), "nodes": nodes}
        with suppress(OSError):
            write_privately(path, json.dumps(entry).encode() + b"\n")
            self._bound()

    def all(self) -> list[Known]:
        """Return the clusters whose data directory exists, sorted by directory."""
        found = []
        for path in self._files():
            known = _read(path)
            if known is not None and known.directory.is_dir():
                found.append(known)
            else:
                with suppress(OSError):
                    path.unlink()
        return sorted(found)

    def _files(self) -> list[Path]:
        with suppress(OSError):
            return list(self._folder.glob("*.json"))
        return []

    def _bound(self) -> None:
        files = self._files()
        if len(files) > _MAX:
            self.all()
            newest_first = sorted(self._files(), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in newest_first[_MAX:]:
                path.unlink()


def _read(path: Path) -> Known | None:
    try:
        found = json.loads(path.read_bytes())
        return Known(Path(found["directory"]), parse_time(found["created"]), int(found["nodes"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None


DATA_DIR = text(
    "data-dir",
    default=DATA_DIRECTORY,
    help="Data directory of the cluster; by default it is searched for in this and the parent directories.",
)
_RECORD, _MEMBER, _SERVERS = "running.json", "etcd-member.json", "etcd-servers"


class Running(NamedTuple):
    pid: int
    url: str
    """The URL of the API server; empty while it is starting or stopping."""
    kubeconfig: str
    nodes: int
    started: str
    """The start time, in Kubernetes' format."""
    store: str


def directory_of(invocation: Invocation) -> Path:
    """Return the data directory of a command: that of the flags, of the cluster of this directory, or else the
    default."""
    named = Path(invocation.flags.data_dir)
    if invocation.flags.given("data-dir"):
        return named
    found = data_directory(Path.cwd(), invocation.io.home)
    return found if found is not None and found.parent != Path.cwd() else named


def running_now(invocation: Invocation, api: RunningApiServer, nodes: int, store: str) -> Running:
    """Return the record of a server in this process. `store` is the kind of its store."""
    started = format_time(invocation.io.clock.now())
    return Running(os.getpid(), api.url, str(api.kubeconfig.absolute()), nodes, started, store)


@contextmanager
def process_recorded(directory: Path, store: str) -> Iterator[None]:
    """Record that this process starts, runs and stops the cluster of this data directory, while the block runs; unless
    another process does, which the block will find out."""
    if find_process(directory) is not None:
        yield
        return
    is_new, record = not directory.exists(), directory / _RECORD
    with suppress(OSError):  # the start will say why
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(record, Running(os.getpid(), "", "", 0, "", store))
    try:
        yield
    finally:
        with suppress(OSError):
            record.unlink()
            if is_new:
                directory.rmdir()  # only if it is empty, because the start was refused


@contextmanager
def written_down(invocation: Invocation, directory: Path, running: Running) -> Iterator[None]:
    """Record that the cluster of this data directory runs, while the block runs."""
    KnownClusters(invocation.io.environment, invocation.io.home).remember(
        directory, running.nodes, invocation.io.clock.now()
    )
    record = directory / _RECORD
    _write(record, running)
    try:
        yield
    finally:
        with suppress(OSError):
            _write(record, running._replace(url=""))


def _write(record: Path, running: Running) -> None:
    record.write_text(json.dumps(running._asdict()) + "\n", encoding="utf-8")


def find_running(directory: Path) -> Running | None:
    """Return the record of the process that runs the cluster; None if there is none, or if it is not ready."""
    found = find_process(directory)
    return found if found is not None and found.url else None


def find_process(directory: Path) -> Running | None:
    """Return the record of the process that starts, runs or stops the cluster; None if there is none.

    A stale record is ignored: the process must be alive, and must hold the lock of its database, if it has one."""
    try:
        found: dict[str, Any] = json.loads((directory / _RECORD).read_bytes())
        running = Running(**found)
        os.kill(running.pid, 0)
    except PermissionError:
        return running
    except (OSError, ValueError, TypeError):
        return None
    return running if running.store == "memory" or is_open(directory) else None


def has_member(directory: Path) -> bool:
    """Return whether the machine of this data directory has a member of etcd."""
    return (directory / _MEMBER).exists()


def check_not_in_etcd(directory: Path, otherwise: str = "") -> None:
    """Raise Failed if the cluster of this data directory was last in an etcd that others run. `otherwise` continues the
    message with another way out."""
    with suppress(OSError):
        urls = (directory / _SERVERS).read_text(encoding="utf-8").strip()
        raise Failed(
            f"the objects of the cluster in {directory} are in etcd: give --etcd-servers {urls} and the other flags "
            f"of etcd as before{otherwise}"
        )


def has_joined(directory: Path) -> bool:
    """Return whether the machine of this data directory joined a cluster that others had started."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return bool(json.loads((directory / _MEMBER).read_bytes())["joined"])
    return False


def none_runs(directory: Path) -> None:
    """Raise Failed, with what to do, if a process runs the cluster."""
    found = find_process(directory)
    if found is None:
        return
    if not found.url:
        raise Failed(f"the {unready(directory, found)}; `setpoint down` ends it")
    raise Failed(
        f"a cluster is already running in {directory}, which is in use by another process ({found.pid}, at "
        f"{found.url}); `setpoint status` tells more, `setpoint down` stops it"
    )


def unready(directory: Path, found: Running) -> str:
    """Return what is said of a cluster whose process is not ready, after "the"."""
    return f"cluster in {directory} is starting or stopping (process {found.pid})"


def is_open(directory: Path) -> bool:
    """Return whether a process has the database of this directory open."""
    return is_locked(directory / "state.db-lock")


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
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended and its parent never asks for that, as process 1 of some containers."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False
