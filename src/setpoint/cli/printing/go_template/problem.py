"""The error of this package."""

from __future__ import annotations


class TemplateProblem(ValueError):
    """A template that cannot be read, or does not fit the data; in Go's words. `output` is what it had written."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output
