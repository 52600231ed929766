"""The syntax tree of a shell script."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """A part of a word; its kind is text, variable, command or arithmetic."""

    kind: str
    value: str
    quoted: bool
    script: Script | None = None
    operator: str = ""
    argument: Word | None = None


Word = tuple[Part, ...]


class Redirection(NamedTuple):
    descriptor: int
    operator: str
    """The operator: `>`, `>>`, `<`, `>&`, or `<<`, whose target is the text itself."""
    target: Word


class Simple(NamedTuple):
    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirections: tuple[Redirection, ...]


class Pipeline(NamedTuple):
    commands: tuple[Command, ...]
    negated: bool


class Loop(NamedTuple):
    condition: Script
    body: Script
    until: bool
    redirections: tuple[Redirection, ...] = ()


class For(NamedTuple):
    name: str
    words: tuple[Word, ...]
    body: Script
    redirections: tuple[Redirection, ...] = ()


class If(NamedTuple):
    branches: tuple[tuple[Script, Script], ...]
    otherwise: Script | None


class Case(NamedTuple):
    subject: Word
    branches: tuple[tuple[tuple[Word, ...], Script], ...]


class Group(NamedTuple):
    body: Script
    subshell: bool
    """Whether the group is in parentheses and runs in a subshell."""
    redirections: tuple[Redirection, ...] = ()


class Function(NamedTuple):
    name: str
    body: Script


Command = Simple | Loop | For | If | Case | Group | Function


class Step(NamedTuple):
    """A pipeline of a list, and the operator that joins it to the previous one: `;`, `&&` or `||`."""

    joined: str
    pipeline: Pipeline


class Item(NamedTuple):
    steps: tuple[Step, ...]
    background: bool = False


class Script(NamedTuple):
    items: tuple[Item, ...] = ()
