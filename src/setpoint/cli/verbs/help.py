"""`help`: print the help of a command, as `--help` does: `setpoint help get`."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.help import help_text
from setpoint.cli.invocation import Invocation
from setpoint.cli.main import PROGRAM, close_names, find_command


def run(call: Invocation) -> None:
    path = [PROGRAM]
    command, rest = find_command(list(call.args), path)
    if rest:
        near = close_names(command, rest[0])
        meant = f": did you mean `setpoint help {' '.join([*path[1:], near[0]])}`?" if near else ""
        raise Failed(f"there is no command `{' '.join([*path, *rest])}`{meant}")
    call.print(help_text(command, " ".join(path)), end="")


COMMAND = Command("Help about any command", run, usage="[command]", connects=False)
