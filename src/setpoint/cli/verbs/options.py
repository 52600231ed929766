"""`options`: the flags that every command has."""

from __future__ import annotations

from setpoint.cli.call import Call
from setpoint.cli.command import Command
from setpoint.cli.help import options_text


def run(call: Call) -> None:
    call.say(options_text())


COMMAND = Command("Print the list of flags inherited by all commands", run)
