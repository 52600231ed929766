"""ComponentStatus: read-only and computed on request; only its table columns are defined here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from setpoint.kinds.columns import NAME
from setpoint.kinds.strategy import Column, Strategy
from setpoint.meta.objects import Obj


def _health(obj: Obj) -> dict[str, str]:
    return next((each for each in obj.get("conditions", ()) if each.get("type") == "Healthy"), {})


def _status(obj: Obj, now: datetime) -> str:
    condition = _health(obj)
    if not condition:
        return "Unknown"
    return "Healthy" if condition.get("status") == "True" else "Unhealthy"


def _text(name: str) -> Callable[[Obj, datetime], str]:
    return lambda obj, now: _health(obj).get(name, "")


class ComponentStatusStrategy(Strategy):
    columns = (
        NAME,
        Column("Status", _status, description="Whether the component answers."),
        Column("Message", _text("message"), description="What it answered."),
        Column("Error", _text("error"), description="What went wrong."),
    )


STRATEGY = ComponentStatusStrategy()
