"""`__complete`: asked by the shell, after each press of the key."""

from __future__ import annotations

from setpoint.cli.call import Call
from setpoint.cli.command import Command
from setpoint.cli.completing import offers
from setpoint.cli.plugins import completing_plugin


async def run(call: Call) -> None:
    words = list(call.args)
    completing_plugin(words, call.around.environment)
    found = await offers(words, call.around)
    for word in found.words:
        call.say(word)
    call.say(f":{found.directive}")


COMMAND = Command("Offer what could be typed next", run, raw=True, hidden=True)
