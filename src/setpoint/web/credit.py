"""The credit of a channel: how much of it a tab is ready to receive."""

from __future__ import annotations

from typing import Final

_MAX_MESSAGES: Final = 100_000
_MAX_BYTES: Final = 1 << 30


class Credit:
    """A number of messages and, if the tab has named one, a number of bytes. The last message may exceed it.

    It is true while a message can be sent. A tab that grants both again when it has processed messages bounds what is
    on its way to it: without bytes, many large messages can be, which a slow connection delivers long after they were
    true."""

    __slots__ = ("_bytes", "_messages")

    def __init__(self) -> None:
        self._messages = 0
        self._bytes: int | None = None
        """None: the tab has not named a number."""

    def __bool__(self) -> bool:
        return self._messages > 0 and self.left > 0

    @property
    def left(self) -> int:
        """The number of bytes that can be sent."""
        return _MAX_BYTES if self._bytes is None else self._bytes

    def grant(self, messages: int, size: int | None = None) -> None:
        """Allow so many more messages and bytes."""
        self._messages = min(self._messages + messages, _MAX_MESSAGES)
        if size is not None:
            self._bytes = min((self._bytes or 0) + size, _MAX_BYTES)

    def spend(self, size: int) -> None:
        """Count a message of so many bytes."""
        self._messages -= 1
        if self._bytes is not None:
            self._bytes -= size
