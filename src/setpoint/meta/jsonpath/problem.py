"""The error of this package."""

from __future__ import annotations

from typing import Any


class JsonPathProblem(ValueError):
    """A template that cannot be read, or does not fit the data; in upstream's words.

    `reached` is what had been found on the way: a filter that only asks whether something is there looks at it.
    """

    def __init__(self, message: str, reached: list[Any] | None = None, known: list[str] | None = None) -> None:
        super().__init__(message)
        self.reached: list[Any] = reached if reached is not None else []
        self.path = ""
        """The path up to the step that failed; empty if the template could not be read."""
        self.at: int | None = None
        """How far the template could be read; None if it could."""
        self.template = ""
        """The one that could not be read."""
        self.known: list[str] = known or []
        """Where a field is not found: those that are there."""
