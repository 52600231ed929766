"""Table columns of a Scale."""

from __future__ import annotations

from setpoint.kinds.columns import AGE, NAME
from setpoint.kinds.strategy import Column

COLUMNS = (
    Column("Name", NAME.cell, description=NAME.description),
    Column("Desired", lambda obj, now: (obj.get("spec") or {}).get("replicas", 0), type="integer",
           description="Replicas wanted."),
    Column("Available", lambda obj, now: (obj.get("status") or {}).get("replicas", 0), type="integer",
           description="Replicas that exist."),
    AGE,
)  # fmt: skip
