"""Positions of errors in a text, and their display: a line, the source below it and a caret."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

MAX_ISSUES = 100
_MAX_SNIPPET_BYTES = 16384
_WIDE_DOT = "\uff0e"
_WIDE_CARET = "\uff3e"
NOWHERE = -1
"""The position of an issue that concerns the expression as a whole."""


@dataclass(frozen=True, slots=True)
class Issue:
    """An error in an expression: the message and the code point at which it occurred."""

    message: str
    position: int = NOWHERE


class CelProblem(ValueError):
    """An expression that does not compile. Its text shows every issue with its position and a caret."""

    def __init__(self, source: Source, issues: list[Issue]) -> None:
        self.source = source
        self.issues = issues
        super().__init__(source.render(issues))


class Source:
    """The text of one expression, and the lines in it."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] | None = None

    def line_and_column(self, position: int) -> tuple[int, int]:
        """Return the line, counted from one, and the column, counted from zero."""
        if position < 0:
            return -1, -1
        if self._starts is None:
            starts = [0]
            starts.extend(index + 1 for index, character in enumerate(self.text) if character == "\n")
            self._starts = starts
        line = bisect_right(self._starts, position)
        return line, position - self._starts[line - 1]

    def render(self, issues: list[Issue]) -> str:
        """Return all issues, in the order in which they stand in the text."""
        placed = [(self.line_and_column(issue.position), issue) for issue in issues]
        shown = sorted(placed[:MAX_ISSUES], key=lambda entry: entry[0])
        texts = [self._render(at, issue.message) for at, issue in shown]
        if len(issues) > MAX_ISSUES:
            texts.append(f"{len(issues) - MAX_ISSUES} more errors were truncated")
        return "\n".join(texts)

    def _render(self, at: tuple[int, int], message: str) -> str:
        line, column = at
        if not self.text:
            return f"ERROR: <input>:1:0: {message}"
        head = f"ERROR: <input>:{line}:{column + 1}: {message}"
        if line < 1:
            return head
        lines = self.text.split("\n")
        if line > len(lines):
            return head
        snippet = lines[line - 1].replace("\t", " ")
        if len(snippet.encode("utf-8", "surrogatepass")) > _MAX_SNIPPET_BYTES:
            return head
        dots = "".join(_WIDE_DOT if ord(character) > 127 else "." for character in snippet[:column])
        caret = _WIDE_CARET if column < len(snippet) and ord(snippet[column]) > 127 else "^"
        return f"{head}\n | {snippet}\n | {dots}{caret}"
