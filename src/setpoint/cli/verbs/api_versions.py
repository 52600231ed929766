"""`api-versions`: list the group versions of the server."""

from __future__ import annotations

from setpoint.cli.command import Command
from setpoint.cli.invocation import Invocation


async def run(call: Invocation) -> None:
    if call.args:
        call.usage(f"unexpected arguments: [{' '.join(call.args)}]")
    found = {one.api_version for one in await call.client.discovery.resources(fresh=True)}
    for version in sorted(found):
        call.print(version)


COMMAND = Command(
    'Print the supported API versions on the server, in the form of "group/version"',
    run,
    examples="""
    # Print the supported API versions
    setpoint api-versions
    """,
)
