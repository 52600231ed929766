"""Permissions of a data directory: only its owner may read it, because it contains all Secrets and keys."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from setpoint.cluster.config import ConfigError

log = logging.getLogger("setpoint.cluster")

_OTHERS_MODE = 0o077
_DATA_DIR_NAMES = ("state.db", "pki", "admin.kubeconfig", "identity")
"""Names that identify a directory as the data directory of a cluster."""
FRONT_PROXY, ETCD = "front-proxy", "etcd"
"""The folders of the authorities of the front proxy and of etcd, beside that of the cluster."""
_SECRET_PATTERNS = ("*.kubeconfig", "*.key", "*.pem", "state.db*", "history.db*")


def ensure_private_directory(directory: Path) -> None:
    """Create the directory, or remove the permissions of others. A directory with other content is rejected, because
    others may need it. Raises ConfigError."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = directory.stat()
    except OSError as error:
        raise ConfigError(f"cannot use the data directory {directory}: {error.strerror}") from None
    if not os.access(directory, os.W_OK):
        raise ConfigError(f"cannot write to the data directory {directory}")
    mode = stat.S_IMODE(found.st_mode)
    if not mode & _OTHERS_MODE:
        return
    if mode & stat.S_ISVTX or not _is_data_dir(directory):
        raise ConfigError(
            f"the data directory {directory} is accessible to other users (mode {mode:04o}) and contains other files: "
            "run chmod 0700 on it, or choose another one with --data-dir"
        )
    _restrict(directory, mode, 0o700)


def restrict_secrets(directory: Path, certificates: Path) -> None:
    """Remove the permissions of others from keys and kubeconfigs, and from the folders of certificates. Folders outside
    the data directory are not changed, except those created by this process. Raises ConfigError."""
    authorities = certificates / FRONT_PROXY, certificates / ETCD
    for folder in (*authorities, *((certificates,) if certificates.is_relative_to(directory) else ())):
        if folder.is_dir():
            _restrict_if_open(folder, 0o700)
    for folder in (directory, certificates, *authorities):
        for path in _secret_files(folder):
            _restrict_if_open(path, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Write the file atomically, at no moment readable by others, whatever the umask. Other processes may write it at
    the same time."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)  # a leftover file may have any mode
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)


def _is_data_dir(directory: Path) -> bool:
    names = {entry.name for entry in os.scandir(directory)}
    return names <= {"up.log"} or any(name in names for name in _DATA_DIR_NAMES)


def _secret_files(directory: Path) -> Iterable[Path]:
    for pattern in _SECRET_PATTERNS:
        yield from (path for path in directory.glob(pattern) if path.is_file())


def _restrict_if_open(path: Path, wanted: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS_MODE:
        _restrict(path, mode, wanted)


def _restrict(path: Path, mode: int, wanted: int) -> None:
    try:
        path.chmod(wanted)
    except OSError as error:
        raise ConfigError(
            f"{path} is accessible to other users (mode {mode:04o}), and chmod fails: {error.strerror}"
        ) from None
    log.warning("%s was accessible to other users (mode %04o); changed to mode %04o", path, mode, wanted)
