"""Cells that end at tabs, in columns: the alignment of every table and description.

A cell belongs to a column only if a tab ends it; what follows the last tab of a line is written as it is. A column goes
on for as long as the lines have a cell in it, one after the other, and is as wide as its widest cell. So one line
without a tab is enough to begin a new block with widths of its own. Control characters in cells are made visible.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from setpoint.cli.escaping import escaped

_CELL_END = re.compile("[\t\v]")
_LINE_END = re.compile("[\n\f]")

Paint = Callable[[int, int, str], str]
"""Line, column and text of a cell to what is shown: colours, which take no room."""


def align(text: str, *, least: int = 0, padding: int = 2) -> str:
    """The text with its tabs turned into spaces. `least` is the width of the narrowest column, `padding` the space
    between two of them."""
    parts = _LINE_END.split(text)
    out: list[str] = []
    # A form feed ends the line and every column with it.
    start = 0
    for at, end in enumerate(_LINE_END.findall(text)):
        if end == "\f":
            out += _block(parts[start : at + 1], least, padding)
            start = at + 1
    out += _block(parts[start:], least, padding)
    return "\n".join(out)


class SteadyColumns:
    """Text that comes in pieces, in the columns of kubectl's tables. They do not get narrower from one piece to the
    next, so that a watch keeps its shape."""

    def __init__(self, least: int = 6, padding: int = 3) -> None:
        self._least = least
        self._padding = padding
        self._widest: list[int] = []

    def align(self, text: str, paint: Paint | None = None) -> str:
        return "\n".join(_block(_LINE_END.split(text), self._least, self._padding, self._widest, paint))


def _block(
    lines: list[str], least: int, padding: int, widest: list[int] | None = None, paint: Paint | None = None
) -> list[str]:
    """The widths that columns had before, and have now at their widest, are kept in `widest`."""
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
    """The indices in groups that follow each other without a gap, as first and end. The lines that have a cell in one
    column are some of those that have one in the column before, so a block never reaches beyond the block to its
    left."""
    first = last = indices[0]
    for at in indices[1:]:
        if at != last + 1:
            yield first, last + 1
            first = at
        last = at
    yield first, last + 1
