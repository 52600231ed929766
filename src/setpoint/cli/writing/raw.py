"""`--raw`: send a file to a path of the server unchanged, and print the response."""

from __future__ import annotations

from pathlib import Path

from setpoint.cli.failures import Failed
from setpoint.cli.invocation import Invocation


async def send_raw(call: Invocation, method: str, uri: str) -> None:
    """Send the file. Raise Failed for flags that cannot be combined with it."""
    flags = call.flags
    if method != "DELETE" and len(flags.filename) != 1:
        raise Failed("--raw can only use a single local file or stdin")
    if len(flags.filename) > 1:
        raise Failed("--raw can only use a single local file or stdin")
    name = flags.filename[0] if flags.filename else ""
    if name.startswith(("http://", "https://")):
        raise Failed("--raw cannot read from a url")
    if flags.recursive:
        raise Failed("--raw and --recursive are mutually exclusive")
    if getattr(flags, "selector", ""):
        raise Failed("--raw and --selector (-l) are mutually exclusive")
    if getattr(flags, "output", ""):
        raise Failed("--raw and --output are mutually exclusive")
    if not uri.startswith("/"):
        raise Failed(f'--raw must be a valid URL path: parse "{uri}": invalid URI for request')
    path, _, query = uri.partition("?")
    reply = await call.client.sender.request(method, path, query, _body(call, name))
    call.write(reply.body)


def _body(call: Invocation, name: str) -> bytes:
    if name == "-":
        return call.io.stdin.read()
    if not name:
        return b""
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise Failed(f"open {name}: {(error.strerror or str(error)).lower()}") from None
