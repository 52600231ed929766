"""Log records: klog's line format, `I0102 15:04:05.000000 12345 file.py:7] text`, and a filter that limits repeated
lines.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime

concerns_copy: ContextVar[bool] = ContextVar("concerns_copy", default=False)
"""Whether the current task works on a copy of a cluster. Its warnings would be read as those of the cluster."""
_LETTERS = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}
_WINDOW = 60.0
"""Seconds in which repetitions of a line are counted."""
_BURST = 5
"""Identical lines that are written in a window."""
_MAX_TRACKED_LINES = 1000
"""Distinct lines whose repetitions are counted."""


class KlogFormatter:
    def __init__(self) -> None:
        self._process = f"{os.getpid():7d}"
        self._traceback = logging.Formatter()
        self._second: datetime | None = None
        self._shown = ""

    def line(self, record: logging.LogRecord, now: datetime) -> str:
        """Return the record as a line, with a traceback below it if it has one."""
        second = now.replace(microsecond=0)
        if second != self._second:
            # Formatting the time is most of the work, and many lines are of the same second.
            self._second, self._shown = second, f"{now:%m%d %H:%M:%S}"
        text = (
            f"{_LETTERS.get(record.levelno, 'I')}{self._shown}.{now.microsecond:06d} {self._process} "
            f"{record.filename}:{record.lineno}] {record.getMessage()}\n"
        )
        if record.exc_info:
            text += self._traceback.formatException(record.exc_info) + "\n"
        return text


class LogFilter(logging.Filter):
    """A filter for one handler; handlers cannot share it.

    Warnings about copies of clusters are dropped.

    Exceptions without a message (`TimeoutError()`, a cancellation) are shown as the name of their type. Of identical
    lines five are written in a minute; the next one after that minute says how many were dropped."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lines: dict[tuple[str, int, str], list[float]] = {}
        """The end of the window and the number of lines in it, by logger, level and message."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not is_about_cluster(record):
            return False
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        return record.exc_info is not None or self._is_new(record)

    def _is_new(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        record.msg, record.args = message, ()  # handlers need not format it again
        now, key = self._monotonic(), (record.name, record.levelno, message)
        counted = self._lines.get(key)
        if counted is not None and now < counted[0]:
            counted[1] += 1
            return counted[1] <= _BURST
        if counted is not None:
            if counted[1] > _BURST:
                record.msg = f"{message} (and {counted[1] - _BURST:.0f} times more since)"
            del self._lines[key]  # so that it is inserted as the newest
        elif len(self._lines) >= _MAX_TRACKED_LINES:
            del self._lines[next(iter(self._lines))]
        self._lines[key] = [now + _WINDOW, 1]
        return True


def is_about_cluster(record: logging.LogRecord) -> bool:
    """Return whether a record is to be written: errors, and all other records that do not concern a copy."""
    return record.levelno >= logging.ERROR or not concerns_copy.get()


def _shown(value: object) -> object:
    if isinstance(value, BaseException) and not str(value):
        return type(value).__name__
    return value
