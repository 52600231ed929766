"""Plugins: programs on PATH named `setpoint-foo` or `kubectl-foo`, found as kubectl does."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

PREFIXES = ("setpoint", "kubectl")


def run_plugin(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process with the plugin that has the longest name made of the first words; return if there is
    none."""
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    for length in range(len(names), 0, -1):
        name = "-".join(word.replace("-", "_") for word in names[:length])
        for prefix in PREFIXES:
            program = shutil.which(f"{prefix}-{name}", path=environment.get("PATH"))
            if program is not None:
                os.execve(program, [program, *words[length:]], dict(environment))


def completing_plugin(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process with `kubectl_complete-foo`, which completes a plugin's arguments; return if there is
    none."""
    names = list(takewhile(lambda word: not word.startswith("-"), words[:-1]))
    for length in range(len(names), 0, -1):
        name = "-".join(word.replace("-", "_") for word in names[:length])
        for prefix in PREFIXES:
            if shutil.which(f"{prefix}-{name}", path=environment.get("PATH")) is None:
                continue
            program = shutil.which(f"{prefix}_complete-{name}", path=environment.get("PATH"))
            if program is not None:
                os.execve(program, [program, *words[length:]], dict(environment))
            return


def found_plugins(path: str) -> Iterator[Path]:
    """Yield all plugins, in the order of PATH."""
    prefixes = tuple(f"{one}-" for one in PREFIXES)
    for directory in dict.fromkeys(path.split(os.pathsep)):
        if not directory.strip():
            continue
        try:
            entries = sorted(Path(directory).iterdir())
        except OSError:
            continue
        yield from (entry for entry in entries if entry.name.startswith(prefixes) and not entry.is_dir())
