"""`version`: print the version of this program and of the server."""

from __future__ import annotations

import platform
from typing import Any

from setpoint import __version__
from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.meta.goformat import quote


async def run(invocation: Invocation) -> None:
    if invocation.args:
        invocation.usage(f"unexpected arguments: [{' '.join(invocation.args)}]")
    if invocation.flags.output not in ("", "yaml", "json"):
        raise Failed(f"--output must be 'yaml' or 'json', not {quote(invocation.flags.output)}")
    client = {
        "gitVersion": f"v{__version__}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        "python": platform.python_version(),
    }
    found: dict[str, Any] = {"clientVersion": client}
    try:
        if not invocation.flags.client:
            found["serverVersion"] = await invocation.client.sender.json("GET", "/version")
    finally:
        _report(invocation, found)


def _report(invocation: Invocation, found: dict[str, Any]) -> None:
    """Print the versions; without a server, that of this program."""
    if invocation.flags.output == "yaml":
        from setpoint.meta.yaml_write import write  # rarely needed

        invocation.print(write(found).decode(), end="")
    elif invocation.flags.output == "json":
        import json

        invocation.print(json.dumps(found, indent=2))
    else:
        invocation.print(f"Client Version: {found['clientVersion']['gitVersion']}")
        if "serverVersion" in found:
            invocation.print(f"Server Version: {found['serverVersion'].get('gitVersion', '')}")


COMMAND = Command(
    "Print the client and server version information",
    run,
    (
        switch("client", help="If true, shows client version only (no server required)."),
        text("output", "o", help="One of 'yaml' or 'json'.", choices=("json", "yaml")),
    ),
    examples="""
    # Print the client and server versions
    setpoint version
    """,
)
