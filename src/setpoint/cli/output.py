"""The flags of `-o`."""

from __future__ import annotations

from setpoint.cli.flags import Flag, switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.printing import FORMATS, GET_FORMATS, OutputFlags


def _flags(formats: tuple[str, ...]) -> tuple[Flag, ...]:
    listed = ", ".join(formats)
    return (
        text("output", "o", help=f"Output format. One of: ({listed}).", choices=formats),
        text("template", help="Template string, or path to a template file for the formats that end in -file."),
        switch("allow-missing-template-keys", default=True, help="Ignore errors in templates when a field is missing."),
        switch("show-managed-fields", help="Keep the managedFields when printing objects in JSON or YAML format."),
    )


OUTPUT = _flags(FORMATS)
"""Output flags of verbs that change objects."""
GET_OUTPUT = _flags(GET_FORMATS)
"""Output flags of verbs that show objects."""
AT = text(
    "at",
    help="Show the cluster as it was: at a revision, a time (13:02, 2026-01-31T13:02:00Z), -5m, start, or a mark.",
)
"""The flag of verbs that can show the past (`cli/past.py`)."""


def output_flags(invocation: Invocation) -> OutputFlags:
    """Return the output flags as typed; flags that the command does not have are not set."""
    typed = {name: getattr(invocation.flags, name) for name in OutputFlags._fields if hasattr(invocation.flags, name)}
    if "label_columns" in typed:
        typed["label_columns"] = tuple(typed["label_columns"])
    return OutputFlags(**typed, files=invocation.io.files)
