"""The logs of simulated containers, which are lines in memory, as bytes for one reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import cast

from setpoint.node.kubelet_api.interface import LogOptions
from setpoint.node.runtime.interface import ContainerLog, LogLine


class LineWriter:
    """Formats the lines of a log for one reader, within its byte limit."""

    __slots__ = ("_at_line_start", "_options", "_remaining")

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._remaining = options.limit_bytes
        self._at_line_start = True
        """Whether the next text begins a line: text without a line end is continued by the next one."""

    @property
    def full(self) -> bool:
        return self._remaining is not None and self._remaining <= 0

    def write(self, line: LogLine) -> bytes:
        options = self._options
        if options.since is not None and line.at < options.since:
            return b""
        text = line.text
        if options.timestamps and self._at_line_start:
            text = f"{_stamp(line.at)} {text}"
        self._at_line_start = line.text.endswith("\n") or not line.text
        if line.stream not in options.streams:
            return b""
        data = text.encode("utf-8", "surrogateescape")
        if self._remaining is not None:
            data = data[: self._remaining]
            self._remaining -= len(data)
        return data


def last_lines(lines: Iterable[LogLine], count: int | None) -> list[LogLine]:
    """Return the last `count` lines, or all if it is None; a line may consist of several writes."""
    all_lines = list(lines)
    if count is None:
        return all_lines
    begins = [at for at in range(len(all_lines)) if at == 0 or all_lines[at - 1].text.endswith("\n")]
    return all_lines[begins[-count] :] if 0 < count < len(begins) else all_lines if count else []


def render_lines(lines: Iterable[LogLine], options: LogOptions) -> Iterator[bytes]:
    writer = LineWriter(options)
    for line in last_lines(lines, options.tail):
        data = writer.write(line)
        if data:
            yield data
        if writer.full:
            return


def _stamp(at: float) -> str:
    """Format a time with nine digits of fraction, as clients expect."""
    when = datetime.fromtimestamp(at, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06d}000Z"


async def follow_log(log: ContainerLog, options: LogOptions) -> AsyncGenerator[bytes, None]:
    """Yield the existing lines that the options select, then new ones until the run has ended."""
    writer = LineWriter(options)
    existing = log.lines()
    skip = len(existing) - len(last_lines(existing, options.tail))
    # Closing the generator removes its waiter from the log.
    async with aclosing(cast(AsyncGenerator[LogLine, None], log.follow())) as lines:
        async for line in lines:
            if skip:
                skip -= 1
                continue
            data = writer.write(line)
            if data:
                yield data
            if writer.full:
                return
