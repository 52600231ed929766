"""The output of a terminal in the page, which is bounded."""

from __future__ import annotations

import asyncio
from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from setpoint.cli.virtual_terminal import VirtualTerminal
from setpoint.meta.clock import Clock
from setpoint.meta.errors import TooManyRequests
from setpoint.view.terminal_text import TerminalFilter
from setpoint.web.feed import Conversation

_RATE: Final = 256 * 1024
"""Characters of output that are sent each second, and that wait to be sent; what is beyond is left out."""
_PIECE: Final = 16 * 1024
_MAX_MESSAGES: Final = 20_000
_MESSAGE = Mapping[str, Any]


class Screen:
    """Sends output and messages to the tab, in order. Writing never waits: output that is more than the tab is to
    receive in a second is left out, and counted."""

    def __init__(self, conversation: Conversation, clock: Clock, columns: int, rows: int) -> None:
        self._conversation = conversation
        self._clock = clock
        self._queue: deque[str | _MESSAGE] = deque()
        self._size = 0
        self._left_out = 0
        """Lines that were left out since the last text that was accepted."""
        self._filter = TerminalFilter()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self.columns = columns
        self.rows = rows
        self._on_resize: list[Callable[[], None]] = []

    def write(self, text: str) -> None:
        """Show a text. Only colours, cursor movements and erasing remain of its control sequences."""
        if self._size + len(text) > _RATE:
            left = max(_RATE - self._size, 0) if not self._left_out else 0
            end = text.rfind("\n", 0, left) + 1
            self._left_out += text.count("\n", end) or 1
            text = text[:end]
        elif self._left_out:
            self._note_left_out()
        if text:
            self._append(text)

    def _note_left_out(self) -> None:
        lines, self._left_out = self._left_out, 0
        self._append(f"\x1b[0m... {lines:,} lines left out; `| less` shows all\n")

    def _append(self, text: str) -> None:
        self._queue.append(text)
        self._size += len(text)
        self._more.set()
        self._idle.clear()

    def message(self, **data: Any) -> None:
        """Send a message behind the output so far."""
        if self._left_out:
            self._note_left_out()
        if len(self._queue) > _MAX_MESSAGES:
            raise TooManyRequests.of("the tab does not read what the terminal sends", 0)
        self._queue.append(data)
        self._more.set()
        self._idle.clear()

    def discard(self) -> None:
        """Drop the output that was not sent yet, and begin anew after a command that was interrupted."""
        self._queue = deque(each for each in self._queue if not isinstance(each, str))
        self._size = self._left_out = 0

    def resize(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        for notice in self._on_resize:
            notice()

    @contextmanager
    def on_resize(self, notice: Callable[[], None]) -> Iterator[None]:
        self._on_resize.append(notice)
        try:
            yield
        finally:
            self._on_resize.remove(notice)

    async def sent(self) -> None:
        """Wait until everything is sent."""
        await self._idle.wait()

    async def send_all(self) -> None:
        """Send what is written, until it is cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            self._idle.clear()
            while self._queue:
                first = self._queue.popleft()
                if not isinstance(first, str):
                    self._filter = TerminalFilter()  # a command leaves no sequence open for the next one
                    await self._conversation.send(first)
                    continue
                while self._queue and isinstance(self._queue[0], str) and len(first) < _PIECE:
                    first += self._queue.popleft()  # type: ignore[operator]
                if len(first) > _PIECE:
                    self._queue.appendleft(first[_PIECE:])
                    first = first[:_PIECE]
                if shown := self._filter.filtered(first):
                    await self._conversation.send({"output": shown})
                self._size = max(self._size - len(first), 0)
                if self._size:
                    await self._clock.sleep(len(first) / _RATE)
            self._idle.set()


class Output(VirtualTerminal):
    """The standard output of a command, as a stream of bytes."""

    def __init__(self, write: Callable[[str], None], screen: Screen | None) -> None:
        """`screen` is the terminal that the output goes to; None if it goes to a file or a pipe."""
        super().__init__()
        self._write = write
        self._screen = screen
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")

    def write(self, data: bytes) -> int:  # type: ignore[override]
        text = self._decoder.decode(bytes(data))
        if text:
            self._write(text)
        return len(data)

    def isatty(self) -> bool:
        return self._screen is not None

    def size(self) -> tuple[int, int]:
        return (self._screen.columns, self._screen.rows) if self._screen is not None else (80, 24)
