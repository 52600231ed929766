"""What a command is: a name, flags, and a function; or a name for several of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from setpoint.cli.flags import Flag

if TYPE_CHECKING:
    from setpoint.cli.call import Call

Run = Callable[["Call"], "int | Awaitable[int | None] | None"]
"""Does it, and says the exit code; None is 0. What cannot be done is raised (`failures`)."""


class Lazy(NamedTuple):
    """A command that is known by name and imported when it is called."""

    summary: str
    module: str
    aliases: tuple[str, ...] = ()
    hidden: bool = False
    constant: str = "COMMAND"
    """Its name there: small commands that belong together share a module."""

    def load(self) -> Command:
        found: Command = getattr(import_module(self.module), self.constant)
        return found


class Command(NamedTuple):
    summary: str
    """One line, as in the list of commands."""
    run: Run | None = None
    """None: only its children do something."""
    flags: tuple[Flag, ...] = ()
    usage: str = ""
    """What follows the command's name: `(TYPE[.VERSION][.GROUP] [NAME | -l label]) [flags]`."""
    about: str = ""
    """More than a line, where there is more to say."""
    examples: str = ""
    children: Mapping[str, Command | Lazy] = {}
    aliases: tuple[str, ...] = ()
    connects: bool = True
    """Talks to a server, so the flags that say to which and as whom are its flags too."""
    local: bool = False
    """Acts on the cluster of this directory unless another one is chosen explicitly: never on that of
    `~/.kube/config`."""
    interspersed: bool = True
    """Flags may follow arguments."""
    raw: bool = False
    """Its words are not looked at: all of them are its arguments."""
    hidden: bool = False
    fails_with: int = 1
    """The exit code of failures; more than 1 where 1 says something else."""

    def child(self, name: str) -> Command | Lazy | None:
        return self.children.get(self.name_of(name))

    def name_of(self, word: str) -> str:
        """The name of the child that `word` may be another name of."""
        if word in self.children:
            return word
        return next((name for name, one in self.children.items() if word in one.aliases), word)


def loaded(command: Command | Lazy) -> Command:
    return command.load() if isinstance(command, Lazy) else command
