"""Go's text/template for the data of kubectl: JSON values, Go's own functions, `exists` and `base64decode`.

A `GoTemplate` is parsed once and may be rendered any number of times. Errors raise `TemplateProblem` with Go's message.
Steps, depth and recursion are bounded.
"""

from __future__ import annotations

from typing import Any

from setpoint.cli.printing.go_template.evaluation import Evaluation
from setpoint.cli.printing.go_template.functions import FUNCTIONS
from setpoint.cli.printing.go_template.nodes import Node, TemplateProblem
from setpoint.cli.printing.go_template.parsing import parse

__all__ = ["GoTemplate", "TemplateProblem"]


class GoTemplate:
    __slots__ = ("_templates", "allow_missing_keys", "text")

    def __init__(self, text: str, templates: dict[str, list[Node]], allow_missing_keys: bool) -> None:
        self.text = text
        self.allow_missing_keys = allow_missing_keys
        self._templates = templates

    @classmethod
    def parse(cls, text: str, *, allow_missing_keys: bool = True) -> GoTemplate:
        """Parse a template; without `allow_missing_keys` a missing key is an error instead of `<no value>`."""
        return cls(text, parse(text, FUNCTIONS), allow_missing_keys)

    def render(self, data: Any) -> str:
        """Render the template. Bytes that are not valid UTF-8 are returned as surrogates (`surrogateescape`)."""
        return Evaluation(self.text, self._templates, self.allow_missing_keys).run(data)
