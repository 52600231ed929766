"""`__complete`: return completions to the shell."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.completing import offers
from setpoint.cli.invocation import Invocation
from setpoint.cli.plugins import completing_plugin


async def run(call: Invocation) -> None:
    words = list(call.args)
    completing_plugin(words, call.io.environment)
    found = await offers(words, call.io)
    for word in found.words:
        call.print(word)
    call.print(f":{found.directive}")


COMMAND = Command("Offer what could be typed next", run, raw=True, hidden=True)
