"""`api-versions`: the group versions that the server offers."""

from __future__ import annotations

from setpoint.cli.call import Call
from setpoint.cli.command import Command


async def run(call: Call) -> None:
    if call.args:
        call.usage(f"unexpected arguments: [{' '.join(call.args)}]")
    found = {one.api_version for one in await call.client.discovery.resources(fresh=True)}
    for version in sorted(found):
        call.say(version)


COMMAND = Command(
    'Print the supported API versions on the server, in the form of "group/version"',
    run,
    examples="""
    # Print the supported API versions
    setpoint api-versions
    """,
)
