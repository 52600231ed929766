"""What all commands that write have in common: dry runs, validation, names of field managers, the annotation that
remembers what was applied, and how they tell what they did."""

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
    "DRY_RUN", "OUTPUT", "RECORD", "SAVE_CONFIG", "VALIDATE", "DryRun", "Results", "dry_run", "field_manager",
    "recorded", "subresource", "validation",
]  # fmt: skip
