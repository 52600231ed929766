"""Commands of others: programs on PATH that are called `setpoint-foo` or `kubectl-foo`, as kubectl finds them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

PREFIXES = ("setpoint", "kubectl")


def run_plugin(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Becomes the program that has the longest name made of the first words; returns if there is no such program."""
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    for length in range(len(names), 0, -1):
        name = "-".join(word.replace("-", "_") for word in names[:length])
        for prefix in PREFIXES:
            program = shutil.which(f"{prefix}-{name}", path=environment.get("PATH"))
            if program is not None:
                os.execve(program, [program, *words[length:]], dict(environment))


def completing_plugin(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Becomes the program that knows what could follow a plugin's words, `kubectl_complete-foo`; returns if the words
    are not a plugin's, or it has no such program."""
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
    """All of them, in the order in which they are found."""
    prefixes = tuple(f"{one}-" for one in PREFIXES)
    for directory in dict.fromkeys(path.split(os.pathsep)):
        if not directory.strip():
            continue
        try:
            entries = sorted(Path(directory).iterdir())
        except OSError:
            continue
        yield from (entry for entry in entries if entry.name.startswith(prefixes) and not entry.is_dir())
