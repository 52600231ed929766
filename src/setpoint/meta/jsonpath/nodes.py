"""The nodes of a template."""

from __future__ import annotations

from typing import Any, NamedTuple


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
