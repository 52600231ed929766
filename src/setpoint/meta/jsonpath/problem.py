"""The error of this package."""

from __future__ import annotations

from typing import Any


class JsonPathProblem(ValueError):
    """A template that cannot be read, or does not fit the data; in upstream's words.

    `reached` is what had been found on the way: a filter that only asks whether something is there looks at it.
    """

    def __init__(self, message: str, reached: list[Any] | None = None) -> None:
        super().__init__(message)
        self.reached: list[Any] = reached if reached is not None else []
