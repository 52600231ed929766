"""The command line, one file per command. Commands are imported when they are called, so that `setpoint --help` is
fast."""

from __future__ import annotations

from setpoint.cli.main import main

__all__ = ["main"]
