"""Run a `setpoint` command with a clock that can be shifted while it runs.

`python -m tests.robustness.shifted_clock FILE COMMAND...` adds the seconds in FILE to the wall clock of the process.
SIGUSR2 makes it read the file again.
"""

from __future__ import annotations

import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from setpoint import system
from setpoint.cli import main


def shift(file: Path) -> None:
    offset = timedelta()

    def read(*_: object) -> None:
        nonlocal offset
        offset = timedelta(seconds=float(file.read_text() or 0)) if file.exists() else timedelta()

    def now(_: system.SystemClock) -> datetime:
        return datetime.now(UTC) + offset

    read()
    signal.signal(signal.SIGUSR2, read)
    system.SystemClock.now = now  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    shift(Path(sys.argv[1]))
    main(sys.argv[2:])
