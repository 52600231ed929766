"""Parsing of a JSONPath template to nodes, the text of nodes in messages, and the error of JSONPath.

The parser recurses only for the sides of a filter and the members of a union, which cannot be nested: the grammar
bounds the depth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from setpoint.meta.goformat import Unquotable, plain, quote, unquote_char


class JsonPathError(ValueError):
    """A template is invalid or does not fit the data; the message is upstream's.

    `reached` holds the values found before the error: an existence filter uses them.
    """

    def __init__(self, message: str, reached: list[Any] | None = None, known: list[str] | None = None) -> None:
        super().__init__(message)
        self.reached: list[Any] = reached if reached is not None else []
        self.path = ""
        """Path up to the step that failed; empty if the template could not be parsed."""
        self.at: int | None = None
        """Offset up to which the template could be parsed; None if all of it could."""
        self.template = ""
        """Template that could not be parsed."""
        self.known: list[str] = known or []
        """Names of the existing fields if a field was not found."""


class Text(NamedTuple):
    """Literal text between actions, or quoted within one."""

    text: str


class Literal(NamedTuple):
    """A number or a boolean, returned once for every input value."""

    value: Any


class Field(NamedTuple):
    name: str


class Wildcard(NamedTuple):
    """The step `.*`: all elements of a value."""


class Descent(NamedTuple):
    """The step `..`: a value and all containers within it."""


class Slice(NamedTuple):
    """The step `[start:end:step]`, with None for omitted parts. `single` marks an index: the end is the start plus
    one."""

    start: int | None
    end: int | None
    step: int | None
    single: bool


class Identifier(NamedTuple):
    """One of `range` and `end`; any other identifier is an error when it is evaluated."""

    name: str


class Steps(NamedTuple):
    """The content of one pair of braces: each node is evaluated on the result of the previous one."""

    nodes: tuple[Any, ...]


class Union(NamedTuple):
    members: tuple[Steps, ...]


class Filter(NamedTuple):
    """The step `[?(left operator right)]`; the operator is `exists` if there is only a left side."""

    left: Steps
    operator: str
    right: Steps


Node = Text | Literal | Field | Wildcard | Descent | Slice | Identifier | Steps | Union | Filter


def path_text(nodes: Iterable[Node]) -> str:
    """Return the path as text: `.spec.containers[0].name`."""
    return "".join(map(_node, nodes))


def _node(node: Node) -> str:
    match node:
        case Field(name):
            return "." + name.replace(".", "\\.")
        case Slice(start, end, step, single):
            if single:
                return f"[{start or 0}]"
            parts = ["" if part is None else str(part) for part in (start, end, step)]
            return "[*]" if not any(parts) else "[" + ":".join(parts if parts[2] else parts[:2]) + "]"
        case Filter(left, operator, right):
            if operator == "exists":
                return f"[?(@{path_text(left.nodes)})]"
            return f"[?({_side(left)}{operator}{_side(right)})]"
        case Union(members):
            return "[" + ",".join(path_text(member.nodes).strip("[]") for member in members) + "]"
        case Descent():
            return "."
        case Identifier(name):
            return f"{name} "
        case Text(text):
            return quote(text)
        case Literal(value):
            return plain(value)
        case Steps(inner):
            return path_text(inner)
    return ".*"


def _side(steps: Steps) -> str:
    literal = len(steps.nodes) == 1 and isinstance(steps.nodes[0], Text | Literal)
    return path_text(steps.nodes) if literal else "@" + path_text(steps.nodes)


_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)([^\n]+)")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_TERMINATORS = frozenset(" \t\r\n.,[]$@{}")
_END = ""
"""Character that represents the end of the text."""


def parse(text: str) -> tuple[Node, ...]:
    """Parse a template into texts and actions, in order."""
    reader = _Reader(text)
    nodes: list[Node] = []
    while True:
        brace = text.find("{", reader.at)
        before = text[reader.at : brace if brace >= 0 else len(text)]
        if before:
            nodes.append(Text(before))
        if brace < 0:
            return tuple(nodes)
        reader.at = brace + 1
        try:
            nodes.append(Steps(tuple(reader.action())))
        except JsonPathError as problem:
            problem.at, problem.template = reader.at, text
            raise


def _parse_action(text: str) -> Steps:
    first = parse("{" + text + "}")[0]
    assert isinstance(first, Steps)
    return first


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def action(self) -> list[Node]:
        """Parse everything up to and including the closing brace."""
        text, nodes = self.text, list[Node]()
        while True:
            if text.startswith("}", self.at):
                self.at += 1
                return nodes
            if text.startswith("[?(", self.at):
                nodes.append(self._filter())
                continue
            if text.startswith("..", self.at):
                self._descent(nodes)
                continue
            char = self._next()
            if char in (_END, "\r", "\n"):
                raise JsonPathError("unclosed action")
            if char in " @$":
                continue
            if char == "[":
                nodes.extend(self._brackets())
            elif char in "\"'":
                nodes.append(self._quoted(char))
            elif char == ".":
                nodes.append(self._field())
            elif char in "+-" or char.isdecimal():
                self.at -= 1
                nodes.append(self._number())
            elif _is_alphanumeric(char):
                self.at -= 1
                nodes.append(self._identifier())
            else:
                raise JsonPathError(f"unrecognized character in action: {_code_point(char)}")

    def _next(self) -> str:
        if self.at >= len(self.text):
            return _END
        self.at += 1
        return self.text[self.at - 1]

    def _descent(self, nodes: list[Node]) -> None:
        if nodes and isinstance(nodes[-1], Descent):
            raise JsonPathError("invalid multiple recursive descent")
        self.at += 2
        nodes.append(Descent())
        if self.at < len(self.text) and _is_alphanumeric(self.text[self.at]):
            nodes.append(self._field())

    def _field(self) -> Node:
        start, text = self.at, self.text
        while self.at < len(text) and text[self.at] not in _TERMINATORS:
            self.at += 2 if text[self.at] == "\\" else 1
        self.at = min(self.at, len(text))
        name = text[start : self.at]
        return Wildcard() if name == "*" else Field(name.replace("\\", ""))

    def _identifier(self) -> Node:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in _TERMINATORS:
            self.at += 1
        name = self.text[start : self.at]
        return Literal(name == "true") if name in ("true", "false") else Identifier(name)

    def _number(self) -> Node:
        start = self.at
        if self.text[start] in "+-":
            self.at += 1
        while self.at < len(self.text) and (self.text[self.at] == "." or self.text[self.at].isdecimal()):
            self.at += 1
        number = self.text[start : self.at]
        integer = _integer(number)
        if integer is not None:
            return Literal(integer)
        if not _FLOAT.fullmatch(number):
            raise JsonPathError(f"cannot parse number {number}")
        return Literal(float(number))

    def _quoted(self, quote: str) -> Node:
        start = self.at - 1
        while True:
            char = self._next()
            if char in (_END, "\n"):
                raise JsonPathError("unterminated quoted string")
            if char == quote and self.text[self.at - 2] != "\\":
                break
        return Text(_unquoted(self.text[start : self.at]))

    def _brackets(self) -> list[Node]:
        start = self.at
        while (char := self._next()) != "]":
            if char in (_END, "\n"):
                raise JsonPathError("unterminated array")
        inside = self.text[start : self.at - 1]
        if inside == "*":
            inside = ":"
        members = inside.split(",")
        if len(members) > 1:
            return [Union(tuple(_parse_action(f"[{member.strip(' ')}]") for member in members))]
        key = _KEY.fullmatch(inside)
        if key:
            return list(_parse_action("." + key[1]).nodes)
        return [_slice(inside)]

    def _filter(self) -> Node:
        start = self.at = self.at + 3
        opened = closed = False
        pair = ""
        while True:
            char = self._next()
            if char in (_END, "\n"):
                raise JsonPathError("unterminated filter")
            if char in "\"'":
                if not opened:
                    opened, pair = True, char
                elif char == pair and self.text[self.at - 2] != "\\":
                    closed = True
            elif char == ")" and opened == closed:
                break
        inside = self.text[start : self.at - 1]
        if self._next() != "]":
            raise JsonPathError("unclosed array expect ]")
        comparison = _COMPARISON.fullmatch(inside)
        if comparison is None:
            return Filter(_parse_action(inside), "exists", Steps(()))
        left, operator, right = comparison.groups()
        return Filter(_parse_action(left), operator, _parse_action(right))


def _slice(text: str) -> Node:
    found = _SLICE.fullmatch(text)
    if found is None:
        raise JsonPathError(f"invalid array index {text}")
    numbers: list[int | None] = []
    for part in (found[1], (found[2] or "")[1:], (found[3] or "")[1:]):
        number = _integer(part) if part else None
        if part and number is None:
            raise JsonPathError(f"array index {part} is not a number")
        numbers.append(number)
    start, end, step = numbers
    if found[2] is None:
        return Slice(start, (start or 0) + 1, step, single=True)
    return Slice(start, end, step, single=False)


def _integer(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 400:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def _unquoted(quoted: str) -> str:
    """Unquote a Go string in either kind of quotes. Bytes that are not UTF-8 become surrogates."""
    quote, inside = quoted[0], quoted[1:-1]
    if "\\" not in inside and quote not in inside:
        return inside
    out = bytearray()
    at = 0
    while at < len(inside):
        try:
            piece, at = unquote_char(inside, at, quote)
        except Unquotable:
            raise JsonPathError(f"unquote string {quoted} error invalid syntax") from None
        out += piece
    return out.decode("utf-8", "surrogateescape")


def _is_alphanumeric(char: str) -> bool:
    return char == "_" or char.isalpha() or char.isdecimal()


def _code_point(char: str) -> str:
    """Return Go's %#U."""
    text = f"U+{ord(char):04X}"
    return f"{text} '{char}'" if char.isprintable() else text
