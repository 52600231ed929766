"""The input of a terminal in the page: what the user types while a line runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from setpoint.cli.page_terminal.screen import Screen
from setpoint.cli.virtual_terminal import VirtualTerminal
from setpoint.meta.errors import BadRequest
from setpoint.node.runtime.shell.session import StdinBuffer

WINDOW: Final = 32 * 1024
"""Characters that a tab sends ahead of those that it knows to be read."""
_INTERRUPT, _END = "\x03", "\x04"


class TypedInput(StdinBuffer):
    """The input of a line. It counts the characters that programs read."""

    def __init__(self, on_read: Callable[[], None]) -> None:
        """`on_read` is called when something was read."""
        self._on_read = on_read
        self.begin()

    def begin(self) -> None:
        """Begin anew without input."""
        self._text = ""
        self.closed = False
        self.read = 0

    @property
    def text(self) -> str:
        return self._text

    @text.setter
    def text(self, rest: str) -> None:
        """Keep what a program leaves of the input."""
        self.read += len(self._text) - len(rest)
        self._text = rest
        self._on_read()

    def append(self, text: str) -> None:
        self._text += text

    def drop(self) -> None:
        """Forget what no program has read, and take no more."""
        self._text = ""
        self.closed = True


class Keyboard(VirtualTerminal):
    """The standard input of a command that is not redirected: what the user types, with the functions of a terminal
    device. Unless a program reads keys raw, Ctrl-C interrupts the line and Ctrl-D ends its input.

    Positions count the characters that the tab has sent since the line began. What is not read when the line ends
    stays with the tab, which sends it again or runs it: nothing is kept here for the next line.
    """

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self.buffer = TypedInput(self._note_read)
        """Input that no command has read; the programs of the shell read it too."""
        self._received = self._acknowledged = 0
        self._interrupted = False
        self._raw = False
        self._arrived = asyncio.Event()

    def begin(self) -> None:
        """Begin with the input of a line."""
        self._interrupted = False
        self._received = self._acknowledged = 0
        self.buffer.begin()

    @property
    def position(self) -> int:
        """The position up to which the input of the line was read, or dropped by Ctrl-C."""
        return self._received if self._interrupted else self.buffer.read

    def typed(self, text: str) -> bool:
        """Take what the tab has sent, and return whether it interrupts the line. Raise BadRequest if it is more than
        the tab may send."""
        if self._interrupted:
            return False  # typed after Ctrl-C: it is not for this line
        if not self._raw:
            text = text.replace("\r", "\n")
            before, interrupt, _ = text.partition(_INTERRUPT)
            if interrupt:
                self._received += len(before) + 1
                self._interrupted = True
                self.buffer.drop()
                return True
        self._received += len(text)
        if self._received - self._acknowledged > WINDOW:
            raise BadRequest(f"a terminal takes at most {WINDOW} characters ahead of those that are read")
        if not self.buffer.closed:
            before, end, _ = (text, "", "") if self._raw else text.partition(_END)
            self.buffer.append(before)
            self.buffer.closed = bool(end)  # what follows is not for this line
            self._arrived.set()
        return False

    def _note_read(self) -> None:
        if self.buffer.read - self._acknowledged >= WINDOW // 2:
            self._acknowledged = self.buffer.read
            self._screen.message(read=self.buffer.read)

    async def line(self) -> bytes:
        while "\n" not in self.buffer.text and not self.buffer.closed:
            await self._wait()
        line, newline, self.buffer.text = self.buffer.text.partition("\n")
        return (line + newline).encode("utf-8", "surrogateescape")

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            if self.buffer.text:
                text, self.buffer.text = self.buffer.text, ""
                yield text.encode("utf-8", "surrogateescape")
            elif self.buffer.closed:
                return
            else:
                await self._wait()

    @contextmanager
    def raw(self) -> Iterator[None]:
        self._screen.message(raw=True)
        self._raw = True
        try:
            yield
        finally:
            self._raw = False
            self._screen.message(raw=False)

    def size(self) -> tuple[int, int]:
        return self._screen.columns, self._screen.rows

    def on_resize(self, notice: Callable[[], None]) -> AbstractContextManager[None]:
        return self._screen.on_resize(notice)

    async def _wait(self) -> None:
        self._arrived.clear()
        await self._arrived.wait()
