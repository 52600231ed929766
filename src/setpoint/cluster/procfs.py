"""Facts from /proc: the resource use of this process, and the process that listens on a port."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from setpoint.apiserver.version import VERSION
from setpoint.meta.exposition import Family, counter, gauge

_START_TIME = time.time()
_PROC = Path("/proc")
_TCP_LISTEN = "0A"
_MAX_PROCESSES = 20_000
_MAX_COMMAND_LENGTH = 60


def process_families() -> list[Family]:
    """Return the usual process metrics of Prometheus clients; memory and open files only on Linux."""
    build = {
        name: VERSION[key] for name, key in (("git_version", "gitVersion"), ("major", "major"), ("minor", "minor"))
    }
    found = [
        gauge("kubernetes_build_info", "Version of this process.", [(build, 1)]),
        counter("process_cpu_seconds_total", "CPU time in seconds.", [({}, round(time.process_time(), 3))]),
        gauge("process_start_time_seconds", "Start time in seconds since the epoch.", [({}, round(_START_TIME, 2))]),
    ]
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        memory = pages * os.sysconf("SC_PAGE_SIZE")
        found.append(gauge("process_resident_memory_bytes", "Resident memory in bytes.", [({}, memory)]))
    with suppress(OSError):
        found.append(
            gauge("process_open_fds", "Number of open file descriptors.", [({}, len(os.listdir("/proc/self/fd")))])
        )
    return found


def listening_process(port: int, proc: Path = _PROC) -> str:
    """Return a description of the process that listens on the TCP port, such as `setpoint up (process 7, in /tmp)`.
    Return an empty text if that is unknown: not on Linux, or another user's process."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port, proc)}
    if not wanted:
        return ""
    for number, process in enumerate(_processes(proc)):
        if number > _MAX_PROCESSES:
            return ""
        if any(target in wanted for target in _open_files(process)):
            return _description(process)
    return ""


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _processes(proc: Path) -> Iterator[Path]:
    try:
        yield from (Path(entry.path) for entry in os.scandir(proc) if entry.name.isdigit())
    except OSError:
        return


def _open_files(process: Path) -> Iterator[str]:
    try:
        names = os.listdir(process / "fd")
    except OSError:
        return  # another user's process, or it has ended
    for name in names:
        try:
            yield os.readlink(process / "fd" / name)
        except OSError:
            continue


def _description(process: Path) -> str:
    try:
        words = [word.decode("utf-8", "replace") for word in (process / "cmdline").read_bytes().split(b"\0") if word]
    except OSError:
        words = []
    # Of a script, show its name instead of the interpreter's.
    if len(words) > 1 and os.path.basename(words[0]).startswith("python") and not words[1].startswith("-"):
        words = words[1:]
    shown = " ".join([os.path.basename(words[0]), *words[1:]]) if words else "a process"
    shown = "".join(char if char.isprintable() else "\ufffd" for char in shown)
    shown = shown if len(shown) <= _MAX_COMMAND_LENGTH else shown[: _MAX_COMMAND_LENGTH - 1] + "\u2026"
    try:
        where = f", in {os.readlink(process / 'cwd')}"
    except OSError:
        where = ""
    return f"{shown} (process {process.name}{where})"
