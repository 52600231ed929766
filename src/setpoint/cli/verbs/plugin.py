"""Plugins: programs on PATH named `setpoint-foo` or `kubectl-foo`, found as kubectl does; `plugin` lists them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from setpoint.cli.command import Command, loaded
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.meta.goformat import quote

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


def run(invocation: Invocation) -> None:
    path = invocation.io.environment.get("PATH", "")
    plugins = list(found_plugins(path))
    if not plugins:
        raise Failed("unable to find any setpoint or kubectl plugins in your PATH")
    invocation.print("The following compatible plugins are available:\n")
    seen: dict[str, Path] = {}
    warnings = 0
    for plugin in plugins:
        invocation.print(plugin.name if invocation.flags.name_only else str(plugin))
        for warning in _warnings(plugin, seen):
            invocation.flush()
            invocation.print_err(f"  - warning: {warning}")
            warnings += 1
        seen.setdefault(plugin.name, plugin)
    if warnings:
        invocation.flush()
        message = "one plugin warning was found" if warnings == 1 else f"{warnings} plugin warnings were found"
        invocation.print_err(f"\nerror: {message}")
        raise Exit(1)


def _warnings(plugin: Path, seen: dict[str, Path]) -> list[str]:
    # Imported here because it contains all commands, and plugins are rare.
    from setpoint.cli.catalog import ROOT

    found = []
    prefix, *path = plugin.name.split("-")
    if not os.access(plugin, os.X_OK):
        found.append(f"{plugin} identified as a {prefix} plugin, but it is not executable")
    if plugin.name in seen:
        found.append(f"{plugin} is overshadowed by a similarly named plugin: {seen[plugin.name]}")
    command, name = ROOT, "setpoint"
    while path and (child := command.child(path[0])) is not None:
        name += f" {command.name_of(path.pop(0))}"
        command = loaded(child)
    if command is not ROOT:
        found.append(f"{plugin.name} overwrites existing command: {quote(name)}")
    return found


LIST = Command(
    "List all visible plugin executables on a user's PATH",
    run,
    (switch("name-only", help="Print only the names of the files, not where they are."),),
    about="A plugin is a program on the PATH whose name begins with setpoint- or kubectl-.",
    connects=False,
)
COMMAND = Command(
    "Provides utilities for interacting with plugins",
    children={"list": LIST},
    usage="[flags]",
    about="""
    Programs on the PATH that are called `setpoint-foo` or `kubectl-foo` are commands: `setpoint foo` runs them with
    the words that follow. `setpoint-foo-bar` is `setpoint foo bar`; a dash within a word is an underscore in the name.
    """,
    connects=False,
)
