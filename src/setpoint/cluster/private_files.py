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
FRONT_PROXY = "front-proxy"
"""The folder beside the cluster's authority that holds the one of its proxies."""
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


def keep_private(directory: Path, certificates: Path) -> None:
    """Keys and the like in there, and the folders in which we keep them, are their owner's alone from now on. Folders
    outside the data directory stay as they are, except those that we make in them. Raises ConfigError."""
    authorities = certificates / FRONT_PROXY
    for folder in (authorities, *((certificates,) if certificates.is_relative_to(directory) else ())):
        if folder.is_dir():
            _close_to_others(folder, 0o700)
    for folder in (directory, certificates, authorities):
        for path in _secrets(folder):
            _close_to_others(path, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Whole or not at all, and at no moment readable to others, whatever the umask."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)  # one that was left behind may have any mode
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)


def _is_ours(directory: Path) -> bool:
    names = {entry.name for entry in os.scandir(directory)}
    return names <= {"up.log"} or any(name in names for name in _OURS)


def _secrets(directory: Path) -> Iterable[Path]:
    for pattern in _SECRETS:
        yield from (path for path in directory.glob(pattern) if path.is_file())


def _close_to_others(path: Path, wanted: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        _close(path, mode, wanted)


def _close(path: Path, mode: int, wanted: int) -> None:
    try:
        path.chmod(wanted)
    except OSError as error:
        raise ConfigError(
            f"{path} is open to others (mode {mode:04o}), and closing it fails: {error.strerror}"
        ) from None
    log.warning("%s was open to others (mode %04o); now it has mode %04o", path, mode, wanted)
