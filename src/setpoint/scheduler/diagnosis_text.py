"""Words that do not need arrays."""

from __future__ import annotations

NO_NODES = "no nodes available to schedule pods"
_LONGEST_NOTE = 1024


def short(message: str) -> str:
    """As much of it as an event can hold."""
    return message if len(message) <= _LONGEST_NOTE else f"{message[: _LONGEST_NOTE - 4]} ..."
