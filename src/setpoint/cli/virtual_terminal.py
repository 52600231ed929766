"""The interface of a terminal that is no device of this machine: its input arrives in messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from io import BytesIO


class VirtualTerminal(BytesIO):
    """The input of a command that is typed in a virtual terminal. Reads of the stream itself are at its end: a command
    that waits for what the user types uses these methods."""

    def isatty(self) -> bool:
        return True

    async def line(self) -> bytes:
        """Return the next line with its end; empty at the end of the input."""
        raise NotImplementedError

    def pieces(self) -> AsyncIterator[bytes]:
        """Return the input as it arrives, until its end."""
        raise NotImplementedError

    def raw(self) -> AbstractContextManager[None]:
        """Pass every key to the command while the block runs, Ctrl-C too, and do not echo them."""
        raise NotImplementedError

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        raise NotImplementedError

    def on_resize(self, notice: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `notice` after each change of the size while the block runs."""
        raise NotImplementedError
