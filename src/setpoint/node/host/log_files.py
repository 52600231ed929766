"""Reads the log files of containers in the format of the Container Runtime Interface.

Each line is an entry: a time, the stream, a tag (`F` for the end of a line, `P` for a part of one) and the text, such
as `2026-11-16T13:24:58.278176602Z stdout F hello`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.file_watch import DirectoryWatch
from setpoint.node.kubelet_api.interface import LogOptions

_PIECE: Final = 64 * 1024
_MAX_ENTRY: Final = 1024 * 1024
"""Bytes of the longest entry; longer ones are split. containerd writes entries of at most 16 KiB."""
_MAX_SCANNED: Final = 1024 * 1024
"""Bytes that are read by one blocking call, even if none of them is selected."""
_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of whether the container of a followed log still runs."""
_REOPEN_DELAY: Final = 0.05
"""Seconds after which a runtime that has created a new log file writes no more to the old one."""
_NANO: Final = 1_000_000_000
_SECONDS_LENGTH: Final = len("2026-11-16T13:25:00")


class LogEntry(NamedTuple):
    """An entry of a log file."""

    time: bytes
    """The time as written; zeros at the end of the fraction may be missing."""
    stream: str
    is_partial: bool
    """Whether the line continues in another entry."""
    text: bytes


def parse_entry(line: bytes) -> LogEntry | None:
    """Parse a line of a log file, without its line end; return None if it is not an entry."""
    fields = line.split(b" ", 3)
    if len(fields) < 3 or fields[1] not in (b"stdout", b"stderr"):
        return None
    tag = fields[2].partition(b":")[0]
    return LogEntry(fields[0], fields[1].decode(), tag == b"P", fields[3] if len(fields) > 3 else b"")


def nanoseconds(time: bytes) -> int:
    """Return the time of an entry in nanoseconds since the epoch; 0 if it is malformed."""
    text = time.decode("ascii", "replace")
    seconds, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if dot else ""
    zone = rest[len(digits) :] if dot else ""
    try:
        at = datetime.fromisoformat(seconds + zone)
        return int(at.timestamp()) * _NANO + int(digits[:9].ljust(9, "0"))
    except (ValueError, OverflowError):
        return 0


def _with_nine_digits(time: bytes) -> bytes:
    """Return the time of an entry with nine digits of fraction, as readers get it."""
    seconds, rest = time[:_SECONDS_LENGTH], time[_SECONDS_LENGTH:]
    zone = rest.lstrip(b".0123456789")
    digits = rest[1 : len(rest) - len(zone)]
    return seconds + b"." + digits[:9].ljust(9, b"0") + zone


class EntryWriter:
    """Formats entries for one reader, within its byte limit."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._since = round(options.since * _NANO) if options.since is not None else None
        self._remaining = options.limit_bytes
        self._at_line_start = True

    @property
    def is_full(self) -> bool:
        return self._remaining is not None and self._remaining <= 0

    def write(self, line: bytes) -> bytes:
        """Return what the reader gets of a line of the file; empty if it is not selected, or not an entry."""
        entry = parse_entry(line)
        if entry is None or entry.stream not in self._options.streams:
            return b""
        if self._since is not None and nanoseconds(entry.time) < self._since:
            return b""
        data = entry.text if entry.is_partial else entry.text + b"\n"
        if self._options.timestamps and self._at_line_start:
            data = _with_nine_digits(entry.time) + b" " + data
        self._at_line_start = not entry.is_partial
        if self._remaining is not None:
            data = data[: self._remaining]
            self._remaining -= len(data)
        return data


def tail_offset(descriptor: int, size: int, count: int) -> int:
    """Return the offset at which the last `count` lines of the log begin, of the first `size` bytes of its file."""
    if count == 0:
        return size
    seen = 0
    for at, line in _entries_backwards(descriptor, size):
        entry = parse_entry(line)
        seen += entry is not None and not entry.is_partial
        if seen > count:
            return at + len(line) + 1
    return 0


def _entries_backwards(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the content of the complete entries of a file, the last first."""
    start, end, buffer = size, 0, b""
    while start > 0 or end > 0:
        cut = buffer.rfind(b"\n", 0, max(end - 1, 0))
        if cut < 0 and start > 0:
            kept = buffer[:end] if end <= _MAX_ENTRY else b""
            start, end = max(0, start - _PIECE), len(kept) + min(_PIECE, start)
            buffer = os.pread(descriptor, end - len(kept), start) + kept
            continue
        if buffer[end - 1 : end] == b"\n":
            yield start + cut + 1, buffer[cut + 1 : end - 1]
        end = cut + 1


class _Reader:
    """Reads the selected lines of one log, in blocking calls."""

    def __init__(self, path: Path, options: LogOptions) -> None:
        self._path = path
        self._writer = EntryWriter(options)
        self._file = FileIO(path)
        size = os.fstat(self._file.fileno()).st_size
        self._offset = tail_offset(self._file.fileno(), size, options.tail) if options.tail is not None else 0
        self._end = None if options.follow else size
        """The offset at which reading ends; None to read what is appended too."""
        self._incomplete = b""

    @property
    def is_full(self) -> bool:
        return self._writer.is_full

    def read(self) -> bytes | None:
        """Return the next selected bytes, which may be empty; None at the end of the file."""
        found: list[bytes] = []
        scanned = 0
        while not self.is_full and scanned < _MAX_SCANNED and sum(map(len, found)) < _PIECE:
            limit = _PIECE if self._end is None else min(_PIECE, self._end - self._offset)
            data = os.pread(self._file.fileno(), limit, self._offset)
            if not data:
                return b"".join(found) if found or scanned else None
            self._offset += len(data)
            scanned += len(data)
            lines = (self._incomplete + data).split(b"\n")
            self._incomplete = lines.pop()
            if len(self._incomplete) > _MAX_ENTRY:
                lines.append(self._incomplete)
                self._incomplete = b""
            for line in lines:
                found.append(self._writer.write(line))
                if self.is_full:
                    break
        return b"".join(found)

    def finish(self) -> bytes:
        """Return what the reader gets of an incomplete last entry."""
        line, self._incomplete = self._incomplete, b""
        return self._writer.write(line) if line else b""

    def is_replaced(self) -> bool:
        """Return whether the log was rotated: whether another file has its name now."""
        try:
            now, own = os.stat(self._path), os.fstat(self._file.fileno())
        except OSError:
            return False
        return (now.st_dev, now.st_ino) != (own.st_dev, own.st_ino)

    def reopen(self) -> None:
        """Continue with the beginning of the file that has the log's name now."""
        with suppress(OSError):
            replacement = FileIO(self._path)
            self._file.close()
            self._file, self._offset, self._incomplete = replacement, 0, b""

    def close(self) -> None:
        self._file.close()


class LogFiles:
    """Reads logs, in bounded memory."""

    def __init__(self, pool: BlockingPool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def read(
        self, path: Path, options: LogOptions, is_running: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines that the options select. A log that is followed ends when `is_running` returns False, which
        says whether the container runs, and all its lines have been read. Raise OSError."""
        reader = await self._pool.run(_Reader, path, options)
        watch: DirectoryWatch | None = None
        checked_at, is_ended = self._clock.monotonic(), False
        try:
            while not reader.is_full:
                data = await self._pool.run(reader.read)
                if data is not None:
                    if data:
                        yield data
                    continue
                if not options.follow or is_ended:
                    break
                if watch is None:
                    watch = await DirectoryWatch.open(path.parent, self._pool, self._clock)
                    continue  # what was written before the watch began has no notification
                await watch.changed(_CHECK_INTERVAL)
                if await self._pool.run(reader.is_replaced):
                    await self._clock.sleep(_REOPEN_DELAY)
                    while data := await self._pool.run(reader.read):
                        yield data
                    await self._pool.run(reader.reopen)
                elif self._clock.monotonic() - checked_at >= _CHECK_INTERVAL:
                    checked_at = self._clock.monotonic()
                    is_ended = not await is_running()
            if not reader.is_full and (last := reader.finish()):
                yield last
        finally:
            if watch is not None:
                watch.close()
            reader.close()
