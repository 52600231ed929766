"""Problems in the files of a course."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A problem at one place of a file."""

    file: str
    line: int
    """The number of the line, from 1 on; 0 means the whole file."""
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


class InvalidLesson(ValueError):
    """A file of a course is invalid. `problems` lists everything that was found, in the order of the lines."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class ProblemList:
    """Collects the problems of one file, at most `MOST`."""

    MOST = 100

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def add(self, line: int, text: str) -> None:
        if len(self.found) < self.MOST:
            self.found.append(Problem(self.file, line, text))

    def raise_any(self) -> None:
        """Raise InvalidLesson if there are problems."""
        if self.found:
            raise InvalidLesson(sorted(self.found, key=lambda each: each.line))
