"""Cells that end at tabs, in columns: the alignment of every table and description.

A cell belongs to a column only if a tab ends it; what follows the last tab of a line is written as it is. A column goes
on for as long as the lines have a cell in it, one after the other, and is as wide as its widest cell. So one line
without a tab is enough to begin a new block with widths of its own.
"""

from __future__ import annotations

import re

_CELL_END = re.compile("[\t\v]")
_LINE_END = re.compile("[\n\f]")


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


def _block(lines: list[str], least: int, padding: int) -> list[str]:
    cells = [_CELL_END.split(line) for line in lines]
    widths: list[list[int]] = [[] for _ in cells]
    column = 0
    going_on = [at for at, line in enumerate(cells) if len(line) > 1]
    while going_on:
        for run in _runs(going_on):
            width = max(least, max(len(cells[at][column]) for at in run) + padding)
            for at in run:
                widths[at].append(width)
        column += 1
        going_on = [at for at in going_on if len(cells[at]) > column + 1]
    return [
        "".join(cell.ljust(width) for cell, width in zip(line, width_of, strict=False)) + line[-1]
        for line, width_of in zip(cells, widths, strict=True)
    ]


def _runs(indices: list[int]) -> list[list[int]]:
    """The indices in groups that follow each other without a gap. The lines that have a cell in one column are some of
    those that have one in the column before, so a block never reaches beyond the block to its left."""
    runs: list[list[int]] = []
    for at in indices:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs
