"""What a terminal must not take for commands."""

from __future__ import annotations

import re

_BREAK = re.compile(r"[\f\n\r]")


def escaped(text: str) -> str:
    """Without the bytes that begin a terminal's commands, or go back over what is written."""
    if "\x1b" in text or "\r" in text:
        return text.replace("\x1b", "^[").replace("\r", "\\r")
    return text


def cell(text: str) -> str:
    """One line of it: what follows a line break is left out, and dots say so."""
    found = _BREAK.search(text)
    return escaped(text) if found is None else escaped(text[: found.start()]) + "..."
