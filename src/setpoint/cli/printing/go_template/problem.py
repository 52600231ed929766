"""The error of this package."""

from __future__ import annotations


class TemplateProblem(ValueError):
    """A template is invalid or does not fit the data; the message is Go's. `output` is the text rendered before the
    error."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output
