"""Pipelines whose programs run concurrently: output reaches the next program as it is written.

A program that is waiting does not hold up the others. When the last program ends, those before it end too: at once if
they have written something, because their next write would fail, and otherwise at their first write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from setpoint.node.runtime.shell.session import (
    FOREVER,
    WAIT_FOR_EVENT,
    WAIT_FOR_INPUT,
    WAIT_FOR_TEXT,
    Break,
    Continue,
    Exit,
    ProgramRun,
    Return,
    Session,
    StdinBuffer,
    Streams,
)

_FULL = 64 * 1024
"""Characters in a pipe above which the program that writes to it waits."""
_MAX_PIPE = 8 << 20
"""Characters in a pipe above which writing fails: a program has written more at once than the next one reads."""
_BROKEN_PIPE = 141

Stage = Callable[[Session, Streams], ProgramRun]
"""Starts one program of a pipeline."""


class _Pipe:
    """The connection of two programs."""

    def __init__(self) -> None:
        self.buffer = StdinBuffer("", closed=False)
        self.reader_ended = False
        self.used = False
        """Whether something was written."""

    def write(self, text: str) -> None:
        """Append a text. Raise BrokenPipeError if it would not be read."""
        if self.reader_ended or len(self.buffer.text) + len(text) > _MAX_PIPE:
            raise BrokenPipeError
        self.used = True
        self.buffer.text += text


class _Running:
    """One program of a pipeline, with the pipes before and behind it; None at the ends of the pipeline."""

    def __init__(self, run: ProgramRun, source: _Pipe | None, sink: _Pipe | None) -> None:
        self.run = run
        self.source = source
        self.sink = sink
        self.status: int | None = None
        """The exit code; None while the program runs."""
        self._wait = 0.0
        self._due = 0.0

    def is_ready(self, now: float, resumed: bool) -> bool:
        """Return whether the program can go on; `resumed` means that what it waits for may have happened."""
        if self.status is not None or (self.sink is not None and len(self.sink.buffer.text) > _FULL):
            return False
        if self._wait >= 0:
            return self._due <= now
        if self.source is None or self._wait not in (WAIT_FOR_INPUT, WAIT_FOR_TEXT):
            return resumed
        buffer = self.source.buffer
        return buffer.closed or ("\n" in buffer.text if self._wait == WAIT_FOR_INPUT else bool(buffer.text))

    def pause(self, now: float) -> float:
        """Return after how many seconds the program can go on; FOREVER if it does not wait for a time."""
        return max(self._due - now, 0.0) if self.status is None and self._wait >= 0 else FOREVER

    def step(self, now: float) -> None:
        try:
            self._wait = next(self.run)
            self._due = now + self._wait if self._wait >= 0 else FOREVER
        except StopIteration as end:
            self._ended(int(end.value or 0))
        except (Exit, Return) as end:
            self._ended(end.code)
        except (Break, Continue):
            self._ended(0)
        except BrokenPipeError:
            self._ended(_BROKEN_PIPE)

    def end_if_unread(self) -> None:
        """End a program whose output is not read any more, if it would fail at its next write."""
        if self.status is None and self.sink is not None and self.sink.reader_ended and self.sink.used:
            self.close()
            self._ended(_BROKEN_PIPE)

    def close(self) -> None:
        self.run.close()

    def _ended(self, status: int) -> None:
        self.status = status
        if self.sink is not None:
            self.sink.buffer.closed = True
        if self.source is not None:
            self.source.reader_ended = True


def run_concurrently(session: Session, stages: Sequence[Stage], streams: Streams) -> ProgramRun:
    """Run the programs of a pipeline, and return the exit code of the last one. The session has `wake_after`."""
    running: list[_Running] = []
    source: _Pipe | None = None
    _ = session.variables  # made here, so that all programs share them
    for number, stage in enumerate(stages):
        sink = _Pipe() if number < len(stages) - 1 else None
        inner = replace(session, stdin_buffer=source.buffer) if source is not None else session
        out = sink.write if sink is not None else streams.out
        io = Streams(out, streams.err)
        if number == 0:
            io.stdin, io.redirected = streams.stdin, streams.redirected
        running.append(_Running(stage(inner, io), source, sink))
        source = sink
    try:
        yield from _run_all(session, running)
    finally:
        for each in running:
            each.close()
    return running[-1].status or 0


def _run_all(session: Session, running: list[_Running]) -> ProgramRun:
    wake_after, resumed = session.wake_after, True
    assert wake_after is not None
    while any(each.status is None for each in running):
        now, progressed = session.now(), False
        for each in running:
            if each.is_ready(now, resumed):
                each.step(now)
                progressed = True
        for each in reversed(running):
            each.end_if_unread()
        resumed = False
        if progressed:
            yield 0.0
            continue
        pause = min(each.pause(now) for each in running)
        if pause != FOREVER:
            wake_after(pause)
        yield WAIT_FOR_EVENT
        resumed = True
    return 0
