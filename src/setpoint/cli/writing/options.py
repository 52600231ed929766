"""Flags of commands that write, and `--raw`, which sends a file to a path of the server unchanged."""

from __future__ import annotations

from enum import Enum
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.files import reason
from setpoint.cli.flags import Flag, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.meta.goformat import parse_bool, quote

_SECRET = ("token", "username", "password")
_CHANGE_CAUSE = "kubernetes.io/change-cause"

DRY_RUN = (
    text(
        "dry-run",
        default="none",
        help='Must be "none", "server", or "client": print what would be sent, or have it checked and not stored.',
        bare="unchanged",
        choices=("none", "server", "client"),
    ),
)
VALIDATE = (
    text(
        "validate",
        default="strict",
        help="Must be one of: strict (or true), warn, ignore (or false): what becomes of unknown and duplicate fields.",
        bare="strict",
        choices=("strict", "warn", "ignore"),
    ),
)
SAVE_CONFIG = (switch("save-config", help="Keep the configuration in an annotation, for a later apply."),)
RECORD = (
    switch(
        "record",
        help="Record the command in an annotation of the object.",
        hidden=True,
        deprecated="--record will be removed in the future",
    ),
)


class DryRun(Enum):
    NONE = ""
    CLIENT = " (dry run)"
    SERVER = " (server dry run)"


def dry_run(invocation: Invocation) -> DryRun:
    """Return the value of --dry-run. Raise Failed if it is unknown."""
    given: str = invocation.flags.dry_run
    if given == "unchanged":
        invocation.print_err("W --dry-run is deprecated and can be replaced with --dry-run=client.")
        return DryRun.CLIENT
    if (enabled := parse_bool(given)) is not None:
        meant = "client" if enabled else "none"
        invocation.print_err(
            f"W --dry-run={'true' if enabled else 'false'} is deprecated (boolean value) and can be replaced "
            f"with --dry-run={meant}."
        )
        given = meant
    found = {"none": DryRun.NONE, "client": DryRun.CLIENT, "server": DryRun.SERVER}.get(given)
    if found is None:
        raise Failed(f'Invalid dry-run value ({given}). Must be "none", "server", or "client".')
    return found


def validation(invocation: Invocation) -> str:
    """Return the field validation in the server's form: `Strict`, `Warn`, `Ignore`."""
    given: str = invocation.flags.validate
    if parse_bool(given) is True or given == "strict":
        return "Strict"
    if parse_bool(given) is False or given == "ignore":
        return "Ignore"
    if given == "warn":
        return "Warn"
    raise Failed(f"invalid - validate option {quote(given)}; must be one of: strict (or true), warn, ignore (or false)")


def field_manager(default: str) -> tuple[Flag, ...]:
    return (text("field-manager", default=default, help="Name of the manager used to track field ownership."),)


def subresource(help: str) -> tuple[Flag, ...]:
    return (text("subresource", help=help, choices=("status", "scale", "resize")),)


def recorded(invocation: Invocation, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object, with the command line as an annotation if `--record` is set."""
    if not invocation.flags.record:
        return obj
    meta = obj.get("metadata") or {}
    annotations = {**(meta.get("annotations") or {}), _CHANGE_CAUSE: _typed(invocation)}
    return {**obj, "metadata": {**meta, "annotations": annotations}}


def _typed(invocation: Invocation) -> str:
    """Return the command line as kubectl records it: flags last, secrets redacted."""
    flags = [
        f"--{flag.name}={'CLASSIFIED' if flag.name in _SECRET else value}"
        for flag, value in invocation.flags.occurrences
    ]
    return " ".join((invocation.command, *invocation.args, *flags))


async def send_raw(invocation: Invocation, method: str, uri: str) -> None:
    """Send the file. Raise Failed for flags that cannot be combined with it."""
    flags = invocation.flags
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
    reply = await invocation.client.sender.request(method, path, query, _body(invocation, name))
    invocation.write(reply.body)


def _body(invocation: Invocation, name: str) -> bytes:
    if name == "-":
        return invocation.io.stdin.read()
    if not name:
        return b""
    try:
        return invocation.io.files.read(name)
    except OSError as error:
        raise Failed(f"open {name}: {reason(error)}") from None
