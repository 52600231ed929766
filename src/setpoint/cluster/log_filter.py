"""What every log line goes through: a reason is never empty, and a line that repeats is not written each time."""

from __future__ import annotations

import logging
from collections.abc import Callable

_WINDOW = 60.0
"""Seconds in which repetitions of a line are counted."""
_BURST = 5
"""Identical lines that are written in a window."""
_REMEMBERED = 1000
"""Lines of which repetitions are counted."""


class LogFilter(logging.Filter):
    """For a handler: several that see the same records need one each.

    Exceptions without a text (`TimeoutError()`, a cancellation) are shown by the name of their type. Of identical lines
    five are written in a minute; the first one after that says how many were not."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lines: dict[tuple[str, int, str], list[float]] = {}
        """The end of the window and the number of lines in it, by logger, level and text."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        return record.exc_info is not None or self._is_new(record)

    def _is_new(self, record: logging.LogRecord) -> bool:
        now, key = self._monotonic(), (record.name, record.levelno, record.getMessage())
        counted = self._lines.get(key)
        if counted is not None and now < counted[0]:
            counted[1] += 1
            return counted[1] <= _BURST
        if counted is not None:
            if counted[1] > _BURST:
                record.msg, record.args = f"{key[2]} (and {counted[1] - _BURST:.0f} times more since)", ()
            del self._lines[key]  # to become the newest
        elif len(self._lines) >= _REMEMBERED:
            del self._lines[next(iter(self._lines))]
        self._lines[key] = [now + _WINDOW, 1]
        return True


def _shown(value: object) -> object:
    if isinstance(value, BaseException) and not str(value):
        return type(value).__name__
    return value
