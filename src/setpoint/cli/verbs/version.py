"""`version`: of this program and of the server."""

from __future__ import annotations

import platform
from typing import Any

from setpoint import __version__
from setpoint.cli.call import Call
from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch, text
from setpoint.meta.body import dump_yaml
from setpoint.meta.goformat import quote


async def run(call: Call) -> None:
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


def _tell(call: Call, found: dict[str, Any]) -> None:
    """Where no server answers, at least what this program is."""
    if call.flags.output == "yaml":
        call.say(dump_yaml(found).decode(), end="")
    elif call.flags.output == "json":
        import json

        call.say(json.dumps(found, indent=2))
    else:
        call.say(f"Client Version: {found['clientVersion']['gitVersion']}")
        if "serverVersion" in found:
            call.say(f"Server Version: {found['serverVersion'].get('gitVersion', '')}")


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
