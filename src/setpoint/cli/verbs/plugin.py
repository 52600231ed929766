"""`plugin`: list plugins."""

from __future__ import annotations

import os
from pathlib import Path

from setpoint.cli.command import Command, loaded
from setpoint.cli.failures import Exit, Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.plugins import found_plugins
from setpoint.meta.goformat import quote


def run(call: Invocation) -> None:
    path = call.io.environment.get("PATH", "")
    plugins = list(found_plugins(path))
    if not plugins:
        raise Failed("unable to find any setpoint or kubectl plugins in your PATH")
    call.print("The following compatible plugins are available:\n")
    seen: dict[str, Path] = {}
    warnings = 0
    for plugin in plugins:
        call.print(plugin.name if call.flags.name_only else str(plugin))
        for warning in _warnings(plugin, seen):
            call.flush()
            call.print_err(f"  - warning: {warning}")
            warnings += 1
        seen.setdefault(plugin.name, plugin)
    if warnings:
        call.flush()
        message = "one plugin warning was found" if warnings == 1 else f"{warnings} plugin warnings were found"
        call.print_err(f"\nerror: {message}")
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
