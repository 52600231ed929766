"""Write private files of the user atomically."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from setpoint.cli.failures import Failed


def write_privately(path: Path, data: bytes) -> None:
    """Write a file atomically, readable by its owner only. The target of a symbolic link is written."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)  # a stale temporary file may have any mode
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a kubeconfig for changes with kubectl's lock file."""
    lock = path.with_name(path.name + ".lock")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0))
    except FileExistsError:
        raise Failed(
            f"open {lock}: file exists\nAnother command is changing {path}; if none is, remove the lock file."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
