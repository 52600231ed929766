"""HorizontalPodAutoscaler as autoscaling/v1 shows it.

Only the defaults and what a reader sees are v1's own. By the time the other hooks are called the object has been
converted: they are those of the stored form.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from setpoint.kinds.autoscaling.horizontalpodautoscaler import (
    HorizontalPodAutoscalerStatusStrategy,
    HorizontalPodAutoscalerStrategy,
)  # fmt: skip
from setpoint.kinds.autoscaling.hpa_conversion import from_v1
from setpoint.kinds.strategy import Column, Obj
from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.decode import zero


def _of_v1(cell: Callable[[Obj, datetime], Any]) -> Callable[[Obj, datetime], Any]:
    return lambda obj, now: cell(obj if "metrics" in obj["spec"] else from_v1(obj), now)


class HorizontalPodAutoscalerV1Strategy(HorizontalPodAutoscalerStrategy):
    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1

    def reset_status(self, obj: Obj) -> None:
        stored = type_of(definition_for("autoscaling", "v2", "HorizontalPodAutoscaler"))
        obj["status"] = zero(stored.fields["status"].type)

    columns = tuple(
        Column(column.name, _of_v1(column.cell), column.type, column.format, column.description, column.priority)
        for column in HorizontalPodAutoscalerStrategy.columns
    )


STRATEGY = HorizontalPodAutoscalerV1Strategy()
STRATEGY.subresources = {"status": HorizontalPodAutoscalerStatusStrategy(STRATEGY)}
