"""The error of this package."""

from __future__ import annotations

from typing import Any


class JsonPathError(ValueError):
    """A template is invalid or does not fit the data; the message is upstream's.

    `reached` holds the values found before the error: an existence filter uses them.
    """

    def __init__(self, message: str, reached: list[Any] | None = None, known: list[str] | None = None) -> None:
        super().__init__(message)
        self.reached: list[Any] = reached if reached is not None else []
        self.path = ""
        """Path up to the step that failed; empty if the template could not be parsed."""
        self.at: int | None = None
        """Offset up to which the template could be parsed; None if all of it could."""
        self.template = ""
        """Template that could not be parsed."""
        self.known: list[str] = known or []
        """Names of the existing fields if a field was not found."""
