"""The console script, and `python -m setpoint`."""

from __future__ import annotations

import gc
from typing import Final, NoReturn

_GC_THRESHOLD: Final = 20_000
"""New objects between two collections of the youngest generation; most commands end before the first. Servers set their
own (`cluster/interpreter_gc.py`)."""


def main() -> NoReturn:
    """Run the command of `sys.argv`."""
    gc.set_threshold(_GC_THRESHOLD)
    # Imported here because loading modules creates most of the objects of a short command.
    from setpoint.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
