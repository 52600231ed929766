"""Commands that still read their flags with click."""

from __future__ import annotations

import click

from setpoint.cli.call import Call
from setpoint.cli.command import Command


def clicked(command: click.Command) -> Command:
    def run(call: Call) -> None:
        command.main(args=call.args, prog_name=call.command)

    return Command((command.help or "").strip(), run, raw=True, connects=False)
