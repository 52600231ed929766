"""What a terminal must not take for commands.

Anybody who can write an object, a definition or an Event chooses texts that others print. kubectl escapes ESC and CR;
here no other control character reaches a terminal either, C1 controls included, which some terminals obey."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All control characters but tab and line feed."""


def escaped(text: str) -> str:
    """The text with its control characters made visible; tabs and line feeds stay."""
    if text.isprintable():
        return text
    return _CONTROL.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    char = found[0]
    if char == "\r":
        return "\\r"
    code = ord(char)
    return "^" + chr(code ^ 0x40) if code < 0x80 else f"\\u{code:04x}"


def cell(text: str) -> str:
    """One line of it: what follows a line break is left out, and dots say so."""
    if text.isprintable():
        return text
    breaks = [at for at in map(text.find, "\f\n\r") if at >= 0]
    return escaped(text[: min(breaks)]) + "..." if breaks else escaped(text)
