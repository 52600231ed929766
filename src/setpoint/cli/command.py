"""The declaration of a command: a name, flags and a function, or a name with subcommands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from setpoint.cli.flags import Flag

if TYPE_CHECKING:
    from setpoint.cli.invocation import Invocation

Run = Callable[["Invocation"], "int | Awaitable[int | None] | None"]
"""Executes a command and returns the exit code; None means 0. Failures are raised (see `failures`)."""


class Lazy(NamedTuple):
    """A command that is imported when it is called."""

    summary: str
    module: str
    aliases: tuple[str, ...] = ()
    hidden: bool = False
    constant: str = "COMMAND"
    """The name of the command in its module: small related commands share a module."""

    def load(self) -> Command:
        found: Command = getattr(import_module(self.module), self.constant)
        return found


class Command(NamedTuple):
    summary: str
    """A one-line description for the list of commands."""
    run: Run | None = None
    """The function that executes the command; None if it only has subcommands."""
    flags: tuple[Flag, ...] = ()
    usage: str = ""
    """The text after the command's name: `(TYPE[.VERSION][.GROUP] [NAME | -l label]) [flags]`."""
    about: str = ""
    """A longer description; empty if the summary is enough."""
    examples: str = ""
    children: Mapping[str, Command | Lazy] = {}
    aliases: tuple[str, ...] = ()
    connects: bool = True
    """True if the command connects to a server and has the connection flags."""
    local: bool = False
    """Whether the command acts on the cluster of this directory unless another one is chosen explicitly, never on that
    of `~/.kube/config`."""
    interspersed: bool = True
    """Whether flags may follow arguments."""
    raw: bool = False
    """Whether the words are passed as arguments without parsing."""
    hidden: bool = False
    fails_with: int = 1
    """The exit code of failures; greater than 1 for commands in which 1 has another meaning."""

    def child(self, name: str) -> Command | Lazy | None:
        return self.children.get(self.name_of(name))

    def name_of(self, word: str) -> str:
        """Return the name of the subcommand that has `word` as its name or alias."""
        if word in self.children:
            return word
        return next((name for name, one in self.children.items() if word in one.aliases), word)


def loaded(command: Command | Lazy) -> Command:
    return command.load() if isinstance(command, Lazy) else command
