"""Escape control sequences in output to a terminal.

The author of an object, a definition or an Event controls texts that other users print. kubectl escapes ESC and CR;
here all other control characters are escaped too, including C1, which some terminals interpret.
"""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All control characters except tab and line feed."""


def escaped(text: str) -> str:
    """Return the text with visible control characters; tabs and line feeds are unchanged."""
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
    """Return the first line of a text, with an ellipsis if there are more."""
    if text.isprintable():
        return text
    breaks = [at for at in map(text.find, "\f\n\r") if at >= 0]
    return escaped(text[: min(breaks)]) + "..." if breaks else escaped(text)
