"""Determine the command line that runs this program again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

NAME = "setpoint"


def program_name(environment: Mapping[str, str], argv: Sequence[str], interpreter: str = sys.executable) -> str:
    """Return `setpoint` if the shell finds this very program under that name, else a path to it: relative if it is
    below the current directory, as `.venv/bin/setpoint`."""
    started = argv[0] if argv else ""
    if os.path.basename(started) != NAME:  # as a module: python -m setpoint
        return f"{_path(interpreter)} -m {NAME}"
    found = shutil.which(NAME, path=environment.get("PATH", os.defpath))
    if found is not None and os.path.realpath(found) == os.path.realpath(started):
        return NAME
    return _path(started)


def _path(program: str) -> str:
    path, here = Path(os.path.abspath(program)), Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
