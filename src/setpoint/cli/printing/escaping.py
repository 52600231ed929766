"""What a terminal must not take for commands."""

from __future__ import annotations


def escaped(text: str) -> str:
    """Without the bytes that begin a terminal's commands, or go back over what is written."""
    if "\x1b" in text or "\r" in text:
        return text.replace("\x1b", "^[").replace("\r", "\\r")
    return text


def cell(text: str) -> str:
    """One line of it: what follows a line break is left out, and dots say so."""
    if text.isprintable():
        return text
    breaks = [at for at in map(text.find, "\f\n\r") if at >= 0]
    return escaped(text[: min(breaks)]) + "..." if breaks else escaped(text)
