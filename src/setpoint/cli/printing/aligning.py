"""Cells in columns, as kubectl aligns them.

Each cell but the last of a line belongs to a column. A column is as wide as its widest cell in lines that follow one
another, and three more; it does not get narrower when more lines come later, so a watch keeps its shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LEAST: Final = 6
PADDING: Final = 3

Paint = Callable[[int, int, str], str]
"""Line, column and text of a cell to what is shown: colours that take no room."""


class Aligner:
    def __init__(self, least: int = LEAST, padding: int = PADDING) -> None:
        self._least = least
        self._padding = padding
        self._remembered: list[int] = []
        """The width that each column had at its widest."""

    def align(self, text: str, paint: Paint | None = None) -> str:
        """Lines of cells that end with tabs; the last line ends with a newline."""
        if not text:
            return ""
        lines = [line.replace("\v", "\t").split("\t") for line in text.replace("\f", "\n").split("\n")]
        lines.pop()
        widths = self._widths(lines)
        out: list[str] = []
        for at, (cells, width_of) in enumerate(zip(lines, widths, strict=True)):
            for column, width in enumerate(width_of):
                cell = cells[column]
                shown = paint(at, column, cell) if paint else cell
                out.append(shown + " " * (width - len(cell)))
            out.append(paint(at, len(width_of), cells[-1]) if paint else cells[-1])
            out.append("\n")
        return "".join(out)

    def _widths(self, lines: list[list[str]]) -> list[list[int]]:
        widths: list[list[int]] = [[] for _ in lines]
        column = 0
        while any(len(cells) > column + 1 for cells in lines):
            if column == len(self._remembered):
                self._remembered.append(self._least)
            start = 0
            while start < len(lines):
                if len(lines[start]) <= column + 1:
                    start += 1
                    continue
                end = start
                widest = 0
                while end < len(lines) and len(lines[end]) > column + 1:
                    widest = max(widest, len(lines[end][column]))
                    end += 1
                width = max(self._remembered[column], widest + self._padding)
                self._remembered[column] = width
                for at in range(start, end):
                    widths[at].append(width)
                start = end
            column += 1
        return widths
