"""The user's editor."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import BinaryIO

from setpoint.cli.call import Call
from setpoint.cli.failures import Failed
from setpoint.meta.goformat import quote

_VARIABLES = ("KUBE_EDITOR", "EDITOR")
_DEFAULT = "vi"


def edit_text(call: Call, data: bytes, suffix: str) -> tuple[bytes, Path]:
    """What the user made of it, and the file it is in, which is the caller's to delete. Raises Failed."""
    with tempfile.NamedTemporaryFile(prefix="setpoint-edit-", suffix=suffix, delete=False) as file:
        file.write(data)
    path = Path(file.name)
    command, shown = _command(call, path)
    call.flush()
    around = call.around
    try:
        done = subprocess.run(
            command,
            stdin=_own(around.stdin),
            stdout=_own(around.stdout),
            stderr=_own(around.stderr),
            env=dict(around.environment),
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


def _command(call: Call, path: Path) -> tuple[list[str], str]:
    """What is run, and how it is called in complaints."""
    environment = call.around.environment
    editor = next((found for name in _VARIABLES if (found := environment.get(name))), _DEFAULT)
    if any(char in editor for char in "\"'\\"):
        shell = environment.get("SHELL") or "/bin/bash"
        return [shell, "-c", f"{editor} {quote(str(path))}"], f"{shell} -c {editor}"
    return [*editor.split(" "), str(path)], editor


def _own(stream: BinaryIO) -> int:
    """The stream itself, if it is one that another program can have."""
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a test's buffer
        return subprocess.DEVNULL
