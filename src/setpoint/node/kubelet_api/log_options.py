"""Which lines of a log somebody wants, and in which form. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from setpoint.meta.times import parse_time
from setpoint.node.kubelet_api.messages import NodeRequest, Refused
from setpoint.node.runtime.interface import STDERR, STDOUT, LogLine

_ALL = "All"
_STREAMS = {_ALL: (STDOUT, STDERR), "Stdout": (STDOUT,), "Stderr": (STDERR,)}


class LogOptions(NamedTuple):
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float | None = None
    limit_bytes: int | None = None
    streams: tuple[str, ...] = (STDOUT, STDERR)


def log_options(request: NodeRequest, now: float) -> LogOptions:
    """Raises Refused."""
    numbers = {name: _number(request, name) for name in ("tailLines", "sinceSeconds", "limitBytes")}
    tail, seconds, limit = numbers.values()
    since_time = request.option("sinceTime")
    wanted = request.option("stream") or _ALL
    if (
        (tail is not None and tail < 0)
        or (limit is not None and limit < 1)
        or (seconds is not None and (seconds < 1 or since_time))
        or wanted not in _STREAMS
        or (wanted != _ALL and tail is not None)
    ):
        raise Refused(422, '{"message": "Invalid request."}')
    since = now - seconds if seconds is not None else None
    if since_time:
        try:
            since = parse_time(since_time).timestamp()
        except ValueError:
            raise Refused(400, '{"message": "Unable to decode query."}') from None
    return LogOptions(
        request.flag("follow"), request.flag("previous"), request.flag("timestamps"), tail, since, limit,
        _STREAMS[wanted],
    )  # fmt: skip


def _number(request: NodeRequest, name: str) -> int | None:
    text = request.option(name)
    if name == "tailLines" and request.option("tail"):
        # An older spelling.
        text = "" if request.option("tail") == "all" else request.option("tail")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise Refused(400, '{"message": "Unable to decode query."}') from None


class LineWriter:
    """Turns the lines of one reader into the bytes it gets."""

    __slots__ = ("_fresh", "_options", "_remain")

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._remain = options.limit_bytes
        self._fresh = True
        """At the beginning of a line: what was written without a line end goes on in the same line."""

    @property
    def full(self) -> bool:
        return self._remain is not None and self._remain <= 0

    def write(self, line: LogLine) -> bytes:
        options = self._options
        if options.since is not None and line.at < options.since:
            return b""
        text = line.text
        if options.timestamps and self._fresh:
            text = f"{_stamp(line.at)} {text}"
        self._fresh = line.text.endswith("\n") or not line.text
        if line.stream not in options.streams:
            return b""
        data = text.encode("utf-8", "surrogateescape")
        if self._remain is not None:
            data = data[: self._remain]
            self._remain -= len(data)
        return data


def tail_of(lines: Iterable[LogLine], count: int | None) -> list[LogLine]:
    """The last `count` lines; several writes may be one line."""
    kept = list(lines)
    if count is None:
        return kept
    begins = [at for at in range(len(kept)) if at == 0 or kept[at - 1].text.endswith("\n")]
    return kept[begins[-count] :] if 0 < count < len(begins) else kept if count else []


def rendered(lines: Iterable[LogLine], options: LogOptions) -> Iterator[bytes]:
    writer = LineWriter(options)
    for line in tail_of(lines, options.tail):
        data = writer.write(line)
        if data:
            yield data
        if writer.full:
            return


def _stamp(at: float) -> str:
    """With nine digits, all of them: kubectl and others cut at the same place."""
    when = datetime.fromtimestamp(at, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond:06d}000Z"
