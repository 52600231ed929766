"""`options`: list the flags of all commands."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.help import options_text
from setpoint.cli.invocation import Invocation


def run(call: Invocation) -> None:
    call.print(options_text())


COMMAND = Command("Print the list of flags inherited by all commands", run)
