"""Table columns that many kinds share."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from setpoint.kinds.cell_texts import since
from setpoint.kinds.strategy import Column
from setpoint.meta.objects import Obj


def _name(obj: Obj, now: datetime) -> Any:
    return obj["metadata"].get("name", "")


def _age(obj: Obj, now: datetime) -> Any:
    return since(obj["metadata"].get("creationTimestamp"), now)


NAME = Column("Name", _name, format="name", description="Name of the object, unique within its namespace.")
AGE = Column("Age", _age, description="Time since the object was created.")
