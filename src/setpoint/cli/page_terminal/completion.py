"""Completion of a line in the terminal: programs, commands with their flags and objects, and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from setpoint.cli.invocation import CommandIO
from setpoint.node.runtime.shell.session import Session

_MOST: Final = 200
_COMMANDS: Final = {"setpoint": (), "kubectl": (), "k": (), "why": ("why",)}
"""Programs that are commands of ours, with the words that they stand for."""


class Completions(NamedTuple):
    start: int
    """The position in the line at which the completed word begins."""
    words: list[tuple[str, str]]
    """The candidates, each with a description, which may be empty."""
    space: bool
    """Whether a space follows a word that is complete."""
    total: int
    """The number of candidates, also of those that were left out."""


class _Target(NamedTuple):
    """The position of the word to complete."""

    words: list[str]
    """The words of its command before it."""
    last: str
    """The word so far, without quotes."""
    start: int
    is_file: bool
    """Whether it follows a redirection."""


async def complete(line: str, session: Session, io: Callable[[], CommandIO]) -> Completions:
    """Return what the last word of the line could become."""
    # Imported here because it imports the commands, which use this terminal's interfaces.
    from setpoint.cli.completing import DEFAULT, NO_SPACE, offers

    target = _target(line)
    if target.last.startswith("--") and "=" in target.last:
        target = target._replace(start=target.start + target.last.index("=") + 1)
    words, last = target.words, target.last
    if target.is_file:
        return _files(session, target)
    if not words:
        if "/" in last:
            return _files(session, target)
        names = sorted({*(session.programs or ()), *session.functions})
        return _limited(target.start, [(each, "") for each in names if each.startswith(last)])
    if words[0] not in _COMMANDS:
        return _files(session, target, directories=words[0] == "cd")
    found = await offers([*_COMMANDS[words[0]], *words[1:], last], io())
    if not found.words and found.directive == DEFAULT:
        return _files(session, target)
    pairs = [(word, about) for word, _, about in (each.partition("\t") for each in found.words)]
    return _limited(target.start, pairs, space=not found.directive & NO_SPACE)


def _limited(start: int, pairs: list[tuple[str, str]], *, space: bool = True) -> Completions:
    return Completions(start, pairs[:_MOST], space, len(pairs))


def _files(session: Session, target: _Target, *, directories: bool = False) -> Completions:
    last = target.last.partition("=")[2] if target.last.startswith("--") else target.last
    folder, slash, name = last.rpartition("/")
    home = session.variables.get("HOME", "/")
    place = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
    path = session.path(place or "/") if slash else session.directory
    found = []
    for each in session.files.entries(path):
        inside = session.files.is_directory(f"{path.rstrip('/')}/{each}")
        if each.startswith(name) and (inside or not directories) and (name.startswith(".") or each[0] != "."):
            found.append((f"{folder}{slash}{each}{'/' if inside else ''}", ""))
    return _limited(target.start, found, space=not (len(found) == 1 and found[0][0].endswith("/")))


def _target(line: str) -> _Target:
    """Return the last word of the line, and the command that it belongs to."""
    words: list[str] = []
    word, start, at, redirected = "", len(line), 0, False
    inside = False
    while at < len(line):
        char = line[at]
        if char in " \t\n|;&()<>":
            if inside and not redirected:
                words.append(word)
            if inside:
                redirected = False
            if char in "\n|;&(" or (char == ")" and inside):
                words, redirected = [], False
            elif char in "<>":
                redirected = True
            word, inside = "", False
            at += 1
            continue
        if not inside:
            start, inside = at, True
        if char in "'\"":
            end = line.find(char, at + 1)
            word += line[at + 1 :] if end < 0 else line[at + 1 : end]
            at = len(line) if end < 0 else end + 1
        elif char == "\\":
            word += line[at + 1 : at + 2]
            at += 2
        else:
            word += char
            at += 1
    names = [each for each in words if "=" not in each or words.index(each) or each.startswith("-")]
    return _Target(names, word if inside else "", start if inside else len(line), redirected)
