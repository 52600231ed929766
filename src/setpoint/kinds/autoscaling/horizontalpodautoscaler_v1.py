"""HorizontalPodAutoscaler as autoscaling/v1 shows it. Rules are those of the stored form, `horizontalpodautoscaler`."""

from __future__ import annotations

from setpoint.kinds.autoscaling.horizontalpodautoscaler import STRATEGY as STORED
from setpoint.kinds.autoscaling.hpa_conversion import from_v1
from setpoint.kinds.strategy import Column, Obj, Strategy


class HorizontalPodAutoscalerV1Strategy(Strategy):
    """What differs on the way in: the defaults. All else happens after the conversion."""

    has_status = True
    has_generation = True

    def default(self, obj: Obj) -> None:
        spec = obj.setdefault("spec", {})
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1

    columns = tuple(
        Column(column.name, lambda obj, now, cell=column.cell: cell(from_v1(obj), now), column.type, column.format,
               column.description, column.priority)
        for column in STORED.columns
    )  # fmt: skip


STRATEGY = HorizontalPodAutoscalerV1Strategy()
STRATEGY.subresources = {name: Strategy() for name in STORED.subresources}
