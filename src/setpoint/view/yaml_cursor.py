"""Finds the field at a cursor in YAML that is being typed, and therefore need not be valid: by indentation alone."""

from __future__ import annotations

import re
from typing import NamedTuple

from setpoint.meta.yaml_places import FieldPath

_KEY = re.compile(
    r"""(?P<dashes>(?:- +)*)(?P<key>[^\s#'"\[\]{}:,-][^:#]*?|"[^"]*"|'[^']*')\s*:(?:\s+(?P<value>.*))?$"""
)
_DASHES = re.compile(r"(?:- +)*-?")


class Cursor(NamedTuple):
    """The field that a cursor is at."""

    api_version: str
    kind: str
    """The type of the document; empty if it is not there yet."""
    outer: FieldPath
    """The path of the mapping that the line belongs to."""
    name: str
    """The key of the line, or what is typed of it."""
    in_value: bool
    """Whether the cursor is behind the key."""
    value: str
    """The text between the key and the cursor; empty unless `in_value`."""
    taken: frozenset[str]
    """The keys that the mapping has in other lines."""


class _Line(NamedTuple):
    number: int
    indent: int
    """The column of the key."""
    items: tuple[int, ...]
    """The columns of dashes before the key."""
    key: str
    value: str


class _Nesting:
    """The fields around a position, outermost first: the column of each, and its key or index."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, str | int]] = []

    def enter_items(self, columns: tuple[int, ...]) -> None:
        """Enter the items of sequences whose dashes are in these columns."""
        for column in columns:
            self._leave(column + 1)
            if self._steps and self._steps[-1][0] == column and isinstance(self._steps[-1][1], int):
                self._steps[-1] = (column, self._steps[-1][1] + 1)
            else:
                self._steps.append((column, 0))

    def enter_key(self, column: int, key: str) -> None:
        self.leave_key(column)
        self._steps.append((column, key))

    def leave_key(self, column: int) -> None:
        """Leave what a key in this column does not belong to."""
        self._leave(column)

    def _leave(self, column: int) -> None:
        while self._steps and self._steps[-1][0] >= column:
            self._steps.pop()

    @property
    def path(self) -> FieldPath:
        return tuple(step for _, step in self._steps)


def cursor_at(text: str, line: int, column: int) -> Cursor:
    """Return where a cursor is; lines and columns count from 1."""
    lines = text.split("\n")
    here = min(max(line, 1), len(lines)) - 1
    start = max((at + 1 for at in range(here + 1) if lines[at].startswith("---")), default=0)
    end = next((at for at in range(here + 1, len(lines)) if lines[at].startswith("---")), len(lines))
    keys = _keys(lines, start, end)
    typed = lines[here][: column - 1]
    indent, items = _position(typed)
    name, in_value, value = _typed(typed)
    nesting, taken = _Nesting(), dict[FieldPath, set[str]]()
    path: FieldPath = ()
    for each in (*(key for key in keys if key.number < here), None, *(key for key in keys if key.number > here)):
        nesting.enter_items(items if each is None else each.items)
        if each is None:
            nesting.leave_key(indent)
            path = nesting.path
            nesting.enter_key(indent, name)
            continue
        nesting.leave_key(each.indent)
        taken.setdefault(nesting.path, set()).add(each.key)
        nesting.enter_key(each.indent, each.key)
    top = {each.key: each.value for each in keys if each.indent == 0}
    return Cursor(
        _plain(top.get("apiVersion", "")),
        _plain(top.get("kind", "")),
        path,
        name,
        in_value,
        value,
        frozenset(taken.get(path, ())),
    )


def _keys(lines: list[str], start: int, end: int) -> list[_Line]:
    """Return the lines with keys, without those in block texts."""
    found: list[_Line] = []
    text_indent = -1
    for number in range(start, end):
        line = lines[number]
        indent = len(line) - len(line.lstrip(" "))
        if text_indent >= 0 and (not line.strip() or indent > text_indent):
            continue
        text_indent = -1
        each = _parsed(number, line)
        if each is not None:
            found.append(each)
            if each.value[:1] in ("|", ">"):
                text_indent = each.items[-1] if each.items else each.indent
    return found


def _parsed(number: int, text: str) -> _Line | None:
    bare = text.lstrip(" ")
    match = _KEY.fullmatch(bare.rstrip())
    if match is None:
        return None
    indent, items = _position(text)
    return _Line(number, indent, items, _plain(match["key"]), match["value"] or "")


def _position(text: str) -> tuple[int, tuple[int, ...]]:
    """Return the column of a key, which need not be complete, and the columns of the dashes before it."""
    first = len(text) - len(text.lstrip(" "))
    match = _DASHES.match(text, first)
    dashes = match[0] if match is not None else ""
    indent = first + len(dashes) + (1 if dashes.endswith("-") else 0)
    return indent, tuple(first + at for at, char in enumerate(dashes) if char == "-")


def _typed(text: str) -> tuple[str, bool, str]:
    bare = text.lstrip(" ")
    match = _DASHES.match(bare)
    key, colon, value = bare[match.end() if match is not None else 0 :].partition(":")
    return _plain(key), bool(colon), value.strip()


def _plain(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
