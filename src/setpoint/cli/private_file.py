"""Files of the user's that others must not read, and that must not be half written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from setpoint.cli.failures import Failed


def write_privately(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, readable by its owner alone. Of a symbolic link the target is written."""
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)  # one that was left behind may have any mode
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others from changing a kubeconfig, as kubectl does it, so that the two respect each other."""
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
