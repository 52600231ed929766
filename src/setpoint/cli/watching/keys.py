"""Decode keys of a terminal: single characters, and escape sequences."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O[@-~]|.)|\x1b|.", re.DOTALL)
_NAMES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up",
    b"\x1b[B": "down", b"\x1bOB": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down",
    b"\x1b[H": "home", b"\x1bOH": "home", b"\x1b[1~": "home", b"g": "home",
    b"\x1b[F": "end", b"\x1bOF": "end", b"\x1b[4~": "end", b"G": "end",
    b"\t": "next", b"\x1b[C": "next", b"\x1bOC": "next",
    b"\x1b[Z": "previous", b"\x1b[D": "previous", b"\x1bOD": "previous",
    b"q": "quit", b"Q": "quit", b"\x03": "quit", b"\x04": "quit",
}  # fmt: skip


def keys_of(data: bytes) -> list[str]:
    """Return the names of known keys; others are ignored."""
    return [_NAMES[each] for each in _SEQUENCE.findall(data) if each in _NAMES]
