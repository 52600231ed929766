"""A data directory is its owner's alone: who reads it has every Secret and every key of the cluster."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from setpoint.cluster.config import ConfigError

log = logging.getLogger("setpoint.cluster")

_OTHERS = 0o077
_OURS = ("state.db", "pki", "admin.kubeconfig", "identity")
"""Where one of these is, a cluster has lived before."""
_SECRETS = ("*.kubeconfig", "*.key", "*.pem", "state.db*")


def make_private(directory: Path) -> None:
    """Made, or taken from others if they could enter it. A directory that has other things in it is not ours to close:
    that is refused. Raises ConfigError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = directory.stat()
    except OSError as error:
        raise ConfigError(f"cannot use the data directory {directory}: {error.strerror}") from None
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"cannot write to the data directory {directory}")
    mode = stat.S_IMODE(found.st_mode)
    if not mode & _OTHERS:
        return
    if mode & stat.S_ISVTX or not _is_ours(directory):
        raise ConfigError(
            f"the data directory {directory} is open to others (mode {mode:04o}) and holds other things: "
            "close it with chmod 0700, or choose another one with --data-dir"
        )
    _close(directory, mode, 0o700)


def keep_private(*directories: Path) -> None:
    """Keys and the like in there can be read by nobody else from now on. Raises ConfigError."""
    for directory in directories:
        for path in _secrets(directory):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & _OTHERS:
                _close(path, mode, 0o600)


def _is_ours(directory: Path) -> bool:
    names = {entry.name for entry in os.scandir(directory)}
    return names <= {"up.log"} or any(name in names for name in _OURS)


def _secrets(directory: Path) -> Iterable[Path]:
    for pattern in _SECRETS:
        yield from (path for path in directory.glob(pattern) if path.is_file())


def _close(path: Path, mode: int, wanted: int) -> None:
    try:
        path.chmod(wanted)
    except OSError as error:
        raise ConfigError(
            f"{path} is open to others (mode {mode:04o}), and closing it fails: {error.strerror}"
        ) from None
    log.info("%s was open to others (mode %04o); now it has mode %04o", path, mode, wanted)
