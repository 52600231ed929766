"""Log lines as Kubernetes' components write them: `I0102 15:04:05.000000 12345 file.py:7] text`."""

from __future__ import annotations

import logging
import os
from datetime import datetime

_LETTERS = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class KlogLines:
    def __init__(self) -> None:
        self._process = f"{os.getpid():7d}"
        self._traceback = logging.Formatter()
        self._second: datetime | None = None
        self._shown = ""

    def line(self, record: logging.LogRecord, now: datetime) -> str:
        """Return the record as a line, with a traceback below it if it has one."""
        second = now.replace(microsecond=0)
        if second != self._second:
            # Many lines are of the same second, and writing it out is most of the work.
            self._second, self._shown = second, f"{now:%m%d %H:%M:%S}"
        text = (
            f"{_LETTERS.get(record.levelno, 'I')}{self._shown}.{now.microsecond:06d} {self._process} "
            f"{record.filename}:{record.lineno}] {record.getMessage()}\n"
        )
        if record.exc_info:
            text += self._traceback.formatException(record.exc_info) + "\n"
        return text
