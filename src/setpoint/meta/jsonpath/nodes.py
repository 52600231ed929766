"""The nodes of a template."""

from __future__ import annotations

from typing import Any, NamedTuple


class Text(NamedTuple):
    """Stands for itself: between actions, or quoted within one."""

    text: str


class Literal(NamedTuple):
    """A number or a boolean: one for every value that comes in."""

    value: Any


class Field(NamedTuple):
    name: str


class Wildcard(NamedTuple):
    """`.*`: all that a value holds."""


class Descent(NamedTuple):
    """`..`: a value, and all within it that hold something."""


class Slice(NamedTuple):
    """`[start:end:step]`; None where nothing is written. `single` for an index: the end is the start plus one."""

    start: int | None
    end: int | None
    step: int | None
    single: bool


class Identifier(NamedTuple):
    """`range`, `end`; everything else is an error when it is evaluated."""

    name: str


class Steps(NamedTuple):
    """The content of one pair of braces: each node is evaluated on the result of the previous one."""

    nodes: tuple[Any, ...]


class Union(NamedTuple):
    members: tuple[Steps, ...]


class Filter(NamedTuple):
    """`[?(left operator right)]`; `exists` when there is only a left side."""

    left: Steps
    operator: str
    right: Steps


Node = Text | Literal | Field | Wildcard | Descent | Slice | Identifier | Steps | Union | Filter
