"""Sends the same data to many streams.

Data is written to a few receivers at a time, as many as the slices of the event loop have time for. What is sent
meanwhile is then written as one block: the work for a receiver is one call, whatever the number of events.
Receivers share the blocks, so those that do not read take little more memory than one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from setpoint.wire.encoding import BLOCK
from setpoint.wire.loop_slices import LoopSlicer
from setpoint.wire.message import StreamWriter

_RECEIVERS_PER_STEP: Final = 16
"""Maximum number of receivers to which a block is written before the time is checked."""
_BYTES_PER_STEP: Final = 256 * 1024
"""Number of bytes, about, that are written before the time is checked: one receiver may get more."""
_NEVER: Final = sys.maxsize
"""Position of a receiver that was removed."""


class Receiver:
    """A stream that receives what is sent after it was added. `end` is called at most once, when nothing more will be
    written to it because its client is too far behind or the broadcast was closed; it must not raise."""

    __slots__ = ("end", "position", "write", "writer")

    def __init__(self, writer: StreamWriter, end: Callable[[], None]) -> None:
        self.writer = writer
        self.write = writer.write_chunks
        self.end = end
        self.position = _NEVER
        """Number of the first frame that was not written to this stream."""


class Broadcast:
    """Frames are encoded chunks, which every receiver gets in the order of `send`. A receiver that is too far behind
    has got a prefix of them."""

    def __init__(self, slicer: LoopSlicer, max_buffered: int) -> None:
        """`max_buffered` is the number of bytes that may be buffered for a receiver, and that may be pending here."""
        self._slicer = slicer
        self._max_buffered = max_buffered
        self._receivers: dict[Receiver, None] = {}
        self._frames: list[bytes] = []
        """Frames that were not written to all receivers yet."""
        self._pending_bytes = 0
        """Bytes of these frames."""
        self._first = 0
        """Number of the first of these frames."""
        self._scheduled = False
        """Whether the slicer will call `_write_step`."""
        self._remaining: Iterator[Receiver] | None = None
        """Receivers of the present block that did not get it yet; None if there is no present block."""
        self._block = b""
        self._block_end = 0
        """Number of the first frame after the present block."""

    def __len__(self) -> int:
        return len(self._receivers)

    def add(self, receiver: Receiver) -> None:
        """Begin to write to a stream, which has everything that was sent before."""
        receiver.position = self._first + len(self._frames)
        self._receivers[receiver] = None

    def remove(self, receiver: Receiver) -> None:
        """Write to a stream what was sent until now, and nothing more."""
        if receiver in self._receivers:
            self.flush(receiver)
            self._forget(receiver)

    def flush(self, receiver: Receiver) -> None:
        """Write to a stream at once what was sent until now."""
        self._write(receiver, self._first + len(self._frames))

    def close(self) -> None:
        """Write to all receivers what was sent until now, and end them."""
        for receiver in tuple(self._receivers):
            self.remove(receiver)
            receiver.end()

    def send(self, frame: bytes) -> None:
        """Write a frame to all receivers soon. If more than the maximum is pending, end all receivers."""
        if not self._receivers:
            return
        self._frames.append(frame)
        self._pending_bytes += len(frame)
        if self._pending_bytes > self._max_buffered:
            for receiver in tuple(self._receivers):
                self._forget(receiver)
                receiver.end()
            self._drop_frames(len(self._frames))
        elif not self._scheduled:
            self._scheduled = True
            if self._slicer.has_time():
                self._write_step()
            else:
                self._slicer.defer(self._write_step)

    def _write_step(self) -> None:
        """Write the present block to some of the receivers."""
        if self._remaining is None and self._frames:
            self._begin_block()
        if self._remaining is not None and self._write_block(self._remaining):
            self._drop_frames(self._block_end - self._first)
        if self._frames:
            self._slicer.defer(self._write_step)
        else:
            self._scheduled = False

    def _write_block(self, remaining: Iterator[Receiver]) -> bool:
        """Write the present block to some of the receivers, and return whether those were the last."""
        first, end, block, limit = self._first, self._block_end, self._block, self._max_buffered
        at_once = max(1, min(_RECEIVERS_PER_STEP, _BYTES_PER_STEP // (len(block) or 1)))
        written = 0
        for receiver in islice(remaining, at_once):
            written += 1
            if receiver.position == first:
                receiver.position = end
                receiver.write(block)
            else:
                self._write(receiver, end)
            if receiver.writer.buffered > limit and receiver in self._receivers:
                self._forget(receiver)
                receiver.end()
        return written < at_once

    def _write(self, receiver: Receiver, end: int) -> None:
        """Write the frames before the number `end` that the stream does not have. They are not joined, because a copy
        would not be shared with other receivers."""
        if receiver.position < end:
            frames = self._frames[receiver.position - self._first : end - self._first]
            receiver.position = end
            for frame in frames:
                receiver.write(frame)

    def _forget(self, receiver: Receiver) -> None:
        del self._receivers[receiver]
        receiver.position = _NEVER

    def _begin_block(self) -> None:
        size = count = 0
        for frame in self._frames:
            size += len(frame)
            count += 1
            if size >= BLOCK:
                break
        self._block = self._frames[0] if count == 1 else b"".join(self._frames[:count])
        self._block_end = self._first + count
        self._remaining = iter(tuple(self._receivers))

    def _drop_frames(self, count: int) -> None:
        """Drop the first frames, with the present block."""
        self._pending_bytes -= sum(map(len, self._frames[:count]))
        del self._frames[:count]
        self._first += count
        self._block, self._remaining = b"", None
