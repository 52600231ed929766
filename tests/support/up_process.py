"""A real `setpoint up` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def up_process(directory: Path, *flags: str) -> Iterator[Path]:
    """The administrator's kubeconfig, as soon as the cluster is ready."""
    command = [sys.executable, "-m", "setpoint", "up", "--port", "0", "--data-dir", "data", *flags]
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if " is ready at " in line:
                break
        else:
            raise RuntimeError((directory / "log").read_text())
        yield directory / "data" / "admin.kubeconfig"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
