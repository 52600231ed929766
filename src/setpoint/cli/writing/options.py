"""Flags of commands that write."""

from __future__ import annotations

from enum import Enum
from typing import Any

from setpoint.cli.failures import Failed
from setpoint.cli.flags import Flag, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.meta.goformat import quote

_SECRET = ("token", "username", "password")
_CHANGE_CAUSE = "kubernetes.io/change-cause"
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")

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
SAVE_CONFIG = (
    switch("save-config", help="Keep the configuration in an annotation, for a later apply."),
)  # fmt: skip
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


def dry_run(call: Invocation) -> DryRun:
    """Return the value of --dry-run. Raise Failed if it is unknown."""
    given: str = call.flags.dry_run
    if given == "unchanged":
        call.print_err("W --dry-run is deprecated and can be replaced with --dry-run=client.")
        return DryRun.CLIENT
    if given in (*_TRUE, *_FALSE):
        meant = "client" if given in _TRUE else "none"
        call.print_err(
            f"W --dry-run={'true' if given in _TRUE else 'false'} is deprecated (boolean value) and can be replaced "
            f"with --dry-run={meant}."
        )
        given = meant
    found = {"none": DryRun.NONE, "client": DryRun.CLIENT, "server": DryRun.SERVER}.get(given)
    if found is None:
        raise Failed(f'Invalid dry-run value ({given}). Must be "none", "server", or "client".')
    return found


def validation(call: Invocation) -> str:
    """Return the field validation in the server's form: `Strict`, `Warn`, `Ignore`."""
    given: str = call.flags.validate
    if given in _TRUE or given == "strict":
        return "Strict"
    if given in _FALSE or given == "ignore":
        return "Ignore"
    if given == "warn":
        return "Warn"
    raise Failed(f"invalid - validate option {quote(given)}; must be one of: strict (or true), warn, ignore (or false)")


def field_manager(default: str) -> tuple[Flag, ...]:
    return (text("field-manager", default=default, help="Name of the manager used to track field ownership."),)


def subresource(help: str) -> tuple[Flag, ...]:
    return (text("subresource", help=help, choices=("status", "scale", "resize")),)


def recorded(call: Invocation, obj: dict[str, Any]) -> dict[str, Any]:
    """With `--record`, return the object with the command line as an annotation."""
    if not call.flags.record:
        return obj
    meta = obj.get("metadata") or {}
    annotations = {**(meta.get("annotations") or {}), _CHANGE_CAUSE: _typed(call)}
    return {**obj, "metadata": {**meta, "annotations": annotations}}


def _typed(call: Invocation) -> str:
    """Return the command line as kubectl records it: flags last, secrets redacted."""
    flags = [
        f"--{flag.name}={'CLASSIFIED' if flag.name in _SECRET else value}"
        for flag, value in call.flags.occurrences
    ]
    return " ".join((call.command, *call.args, *flags))
