"""Align tab-separated cells in columns, for every table and description.

A cell belongs to a column only if a tab ends it; text after the last tab of a line is written as it is. A column
extends over consecutive lines that have a cell in it, and is as wide as its widest cell. A line without a tab therefore
begins a new block with its own widths. Control characters in cells are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from setpoint.cli.escaping import escaped

_CELL_END = re.compile("[\t\v]")
_LINE_END = re.compile("[\n\f]")

Paint = Callable[[int, int, str], str]
"""Maps line, column and text of a cell to its coloured text; colours do not count for the width."""


def align(text: str, *, least: int = 0, padding: int = 2) -> str:
    """Return the text with tabs replaced by spaces. `least` is the minimum column width, `padding` the space between
    columns."""
    parts = _LINE_END.split(text)
    out: list[str] = []
    # A form feed ends the line and all columns.
    start = 0
    for at, end in enumerate(_LINE_END.findall(text)):
        if end == "\f":
            out += _block(parts[start : at + 1], least, padding)
            start = at + 1
    out += _block(parts[start:], least, padding)
    return "\n".join(out)


class SteadyColumns:
    """Aligns text that arrives in chunks. Columns never become narrower, so that the columns of a watch do not move."""

    def __init__(self, least: int = 6, padding: int = 3) -> None:
        self._least = least
        self._padding = padding
        self._widest: list[int] = []

    def align(self, text: str, paint: Paint | None = None) -> str:
        return "\n".join(_block(_LINE_END.split(text), self._least, self._padding, self._widest, paint))


def _block(
    lines: list[str], least: int, padding: int, widest: list[int] | None = None, paint: Paint | None = None
) -> list[str]:
    """Align a block; `widest` holds the previous widths of the columns and is updated."""
    cells = [[escaped(cell) for cell in _CELL_END.split(line)] for line in lines]
    widths: list[list[int]] = [[] for _ in cells]
    column = 0
    going_on = [at for at, line in enumerate(cells) if len(line) > 1]
    while going_on:
        if widest is not None and column == len(widest):
            widest.append(least)
        for first, last in _runs(going_on):
            width = max(least, max(len(cells[at][column]) for at in range(first, last)) + padding)
            if widest is not None:
                width = widest[column] = max(width, widest[column])
            for at in range(first, last):
                widths[at].append(width)
        column += 1
        going_on = [at for at in going_on if len(cells[at]) > column + 1]
    if paint is None:
        return [
            "".join(cell.ljust(width) for cell, width in zip(line, width_of, strict=False)) + line[-1]
            for line, width_of in zip(cells, widths, strict=True)
        ]
    return [
        "".join(
            paint(at, column, cell) + " " * (width - len(cell))
            for column, (cell, width) in enumerate(zip(line, [*width_of, 0], strict=True))
        )
        for at, (line, width_of) in enumerate(zip(cells, widths, strict=True))
    ]


def _runs(indices: list[int]) -> Iterator[tuple[int, int]]:
    """Yield groups of consecutive indices as start and end.

    The lines with a cell in one column are a subset of those in the previous column, so a block never extends beyond
    the block to its left.
    """
    first = last = indices[0]
    for at in indices[1:]:
        if at != last + 1:
            yield first, last + 1
            first = at
        last = at
    yield first, last + 1
