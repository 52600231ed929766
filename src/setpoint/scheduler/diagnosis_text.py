"""Messages that do not need NumPy."""

from __future__ import annotations

NO_NODES = "no nodes available to schedule pods"
_LONGEST_NOTE = 1024


def short(message: str) -> str:
    """Truncate a message to the length of an Event's note."""
    return message if len(message) <= _LONGEST_NOTE else f"{message[: _LONGEST_NOTE - 4]} ..."
