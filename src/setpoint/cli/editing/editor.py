"""Run the user's editor."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation
from setpoint.meta.goformat import quote

_VARIABLES = ("KUBE_EDITOR", "EDITOR")
_DEFAULT = "vi"


def edit_text(call: Invocation, data: bytes, suffix: str) -> tuple[bytes, Path]:
    """Return the edited text and its file, which the caller deletes. Raise Failed."""
    with tempfile.NamedTemporaryFile(prefix="setpoint-edit-", suffix=suffix, delete=False) as file:
        file.write(data)
    path = Path(file.name)
    command, shown = _command(call, path)
    call.flush()
    io = call.io
    try:
        done = subprocess.run(
            command,
            stdin=_own(io.stdin),
            stdout=_own(io.stdout),
            stderr=_own(io.stderr),
            env=dict(io.environment),
            check=False,
        )
    except FileNotFoundError:
        path.unlink()
        raise Failed(f"unable to launch the editor {quote(shown)}") from None
    if done.returncode:
        if path.read_bytes() == data:
            path.unlink()
        raise Failed(f"there was a problem with the editor {quote(shown)}")
    return path.read_bytes(), path


def _command(call: Invocation, path: Path) -> tuple[list[str], str]:
    """Return the command to run, and its name for error messages."""
    environment = call.io.environment
    editor = next((found for name in _VARIABLES if (found := environment.get(name))), _DEFAULT)
    if any(char in editor for char in "\"'\\"):
        shell = environment.get("SHELL") or "/bin/bash"
        return [shell, "-c", f"{editor} {quote(str(path))}"], f"{shell} -c {editor}"
    return [*editor.split(" "), str(path)], editor


def _own(stream: BinaryIO) -> int:
    """Return the file descriptor of a stream that another program can inherit."""
    try:
        return stream.fileno()
    except (OSError, ValueError):  # an in-memory stream of a test
        return subprocess.DEVNULL
