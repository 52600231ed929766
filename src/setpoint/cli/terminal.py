"""The user's terminal: raw mode, size, and restoring its state."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from setpoint.cli.virtual_terminal import VirtualTerminal

_PIECE = 32 * 1024
_DEADLY = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def raw(stream: BinaryIO) -> Iterator[None]:
    """Put the terminal into raw mode, in which Ctrl-C is a key too, and restore it when the block ends or the process
    is killed."""
    if isinstance(stream, VirtualTerminal):
        with stream.raw():
            yield
        return
    # Imported here because it is not available on every system, and rarely needed.
    import termios
    import tty

    descriptor = stream.fileno()
    before = termios.tcgetattr(descriptor)

    def restore() -> None:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    def die(number: int, _: object) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handlers = {number: signal.signal(number, die) for number in _DEADLY}
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # keeps what was typed already
        yield
    finally:
        restore()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def size(stream: BinaryIO) -> tuple[int, int] | None:
    """Return columns and lines; None if the stream is not a terminal, or one of unknown size."""
    if isinstance(stream, VirtualTerminal):
        return stream.size()
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return None
    return (columns, lines) if columns and lines else None


@contextmanager
def on_resize(stream: BinaryIO, notice: Callable[[], None]) -> Iterator[None]:
    """Call `notice` after each change of the terminal's size while the block runs."""
    if isinstance(stream, VirtualTerminal):
        with stream.on_resize(notice):
            yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, notice)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


async def pieces_of(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield input as it arrives, until its end.

    Other tasks run meanwhile, and nothing is read ahead: unread input remains for the next program.
    """
    if isinstance(stream, VirtualTerminal):
        async for piece in stream.pieces():
            yield piece
        return
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        while piece := stream.read(_PIECE):  # an in-memory stream of a test
            yield piece
        return
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, ready.set)
    except OSError:  # a file on disk is always ready
        while piece := os.read(descriptor, _PIECE):
            yield piece
            await asyncio.sleep(0)
        return
    try:
        while True:
            await ready.wait()
            ready.clear()
            with suppress(BlockingIOError):
                try:
                    piece = os.read(descriptor, _PIECE)
                except OSError:  # the terminal is gone
                    return
                if not piece:
                    return
                # No reader is registered while a chunk is processed: the system applies backpressure to the writer.
                loop.remove_reader(descriptor)
                yield piece
                loop.add_reader(descriptor, ready.set)
    finally:
        loop.remove_reader(descriptor)
