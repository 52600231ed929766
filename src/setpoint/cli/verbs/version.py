"""`version`: print the version of this program and of the server."""

from __future__ import annotations

import platform
from typing import Any

from setpoint import __version__
from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.meta.body import dump_yaml
from setpoint.meta.goformat import quote


async def run(call: Invocation) -> None:
    if call.args:
        call.usage(f"unexpected arguments: [{' '.join(call.args)}]")
    if call.flags.output not in ("", "yaml", "json"):
        raise Failed(f"--output must be 'yaml' or 'json', not {quote(call.flags.output)}")
    client = {
        "gitVersion": f"v{__version__}",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        "python": platform.python_version(),
    }
    found: dict[str, Any] = {"clientVersion": client}
    try:
        if not call.flags.client:
            found["serverVersion"] = await call.client.sender.json("GET", "/version")
    finally:
        _tell(call, found)


def _tell(call: Invocation, found: dict[str, Any]) -> None:
    """Print the versions; without a server, that of this program."""
    if call.flags.output == "yaml":
        call.print(dump_yaml(found).decode(), end="")
    elif call.flags.output == "json":
        import json

        call.print(json.dumps(found, indent=2))
    else:
        call.print(f"Client Version: {found['clientVersion']['gitVersion']}")
        if "serverVersion" in found:
            call.print(f"Server Version: {found['serverVersion'].get('gitVersion', '')}")


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
