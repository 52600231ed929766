"""Which process listens on a port, where the system tells: on Linux, and for processes that the user may look into."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_LISTENS = "0A"
_MOST_PROCESSES = 20_000
_SHOWN = 60


def port_holder(port: int, proc: Path = _PROC) -> str:
    """Return a description of the process that listens on the TCP port, such as `setpoint up (process 7, in /tmp)`;
    empty if it cannot be known."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not wanted:
        return ""
    for number, process in enumerate(_processes(proc)):
        if number > _MOST_PROCESSES:
            return ""
        if any(target in wanted for target in _open_files(process)):
            return _described(process)
    return ""


def _listening(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
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
        return  # somebody else's, or gone
    for name in names:
        try:
            yield os.readlink(process / "fd" / name)
        except OSError:
            continue


def _described(process: Path) -> str:
    try:
        words = [word.decode("utf-8", "replace") for word in (process / "cmdline").read_bytes().split(b"\0") if word]
    except OSError:
        words = []
    # A script's interpreter says nothing: its name is the second word.
    if len(words) > 1 and os.path.basename(words[0]).startswith("python") and not words[1].startswith("-"):
        words = words[1:]
    shown = " ".join([os.path.basename(words[0]), *words[1:]]) if words else "a process"
    shown = "".join(char if char.isprintable() else "\ufffd" for char in shown)
    shown = shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "\u2026"
    try:
        where = f", in {os.readlink(process / 'cwd')}"
    except OSError:
        where = ""
    return f"{shown} (process {process.name}{where})"
