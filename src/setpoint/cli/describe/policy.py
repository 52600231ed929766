"""PodDisruptionBudgets and PriorityClasses."""

from __future__ import annotations

from setpoint.cli.describe.context import DescribeContext, meta, spec, status
from setpoint.cli.describe.events import write_events
from setpoint.cli.describe.writer import Writer
from setpoint.client.interface import Obj
from setpoint.kinds.columns import UNSET, labels_text
from setpoint.meta.goformat import plain
from setpoint.meta.selectors import format_labels


async def poddisruptionbudget(obj: Obj, ctx: DescribeContext) -> str:
    wanted, found = spec(obj), status(obj)
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Namespace", meta(obj).get("namespace", ""))
    if wanted.get("minAvailable") is not None:
        w.field("Min available", wanted["minAvailable"])
    elif wanted.get("maxUnavailable") is not None:
        w.field("Max unavailable", wanted["maxUnavailable"])
    selector = wanted.get("selector")
    w.field("Selector", UNSET if selector is None else format_labels(selector))
    w.write(0, "Status:\n")
    for title, key in (
        ("Allowed disruptions", "disruptionsAllowed"),
        ("Current", "currentHealthy"),
        ("Desired", "desiredHealthy"),
        ("Total", "expectedPods"),
    ):
        w.field(title, found.get(key, 0), 2)
    await write_events(w, ctx, obj, "PodDisruptionBudget")
    return w.text()


async def priorityclass(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    w.field("Name", meta(obj).get("name", ""))
    w.field("Value", obj.get("value", 0))
    w.field("GlobalDefault", plain(bool(obj.get("globalDefault"))))
    w.field("PreemptionPolicy", obj.get("preemptionPolicy", ""))
    w.field("Description", obj.get("description", ""))
    w.field("Annotations", labels_text(meta(obj).get("annotations")))
    await write_events(w, ctx, obj, "PriorityClass")
    return w.text()
