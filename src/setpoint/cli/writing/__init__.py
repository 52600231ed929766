"""The common parts of commands that write: dry runs, validation, field managers, the last-applied annotation,
output."""

from setpoint.cli.output import OUTPUT
from setpoint.cli.writing.options import (
    DRY_RUN,
    RECORD,
    SAVE_CONFIG,
    VALIDATE,
    DryRun,
    dry_run,
    field_manager,
    recorded,
    subresource,
    validation,
)
from setpoint.cli.writing.results import Results

__all__ = [
    "DRY_RUN",
    "OUTPUT",
    "RECORD",
    "SAVE_CONFIG",
    "VALIDATE",
    "DryRun",
    "Results",
    "dry_run",
    "field_manager",
    "recorded",
    "subresource",
    "validation",
]
