"""`$(NAME)` in commands, arguments and variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

_REFERENCE = re.compile(r"\$(\$|\(([^()]*)\))")


def expand(text: str, *sources: Mapping[str, str]) -> str:
    """References to what no source knows stay as they are; `$$` is a dollar sign."""
    if "$" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1] == "$":
            return "$"
        for source in sources:
            if found[2] in source:
                return source[found[2]]
        return found[0]

    return _REFERENCE.sub(value, text)
