"""The scheduler's updates of a Pod's status."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.times import format_time

Obj = dict[str, Any]

PODS = builtin("pods")
UNSCHEDULABLE, SCHEDULER_ERROR = "Unschedulable", "SchedulerError"


def with_condition(pod: Obj, clock: Clock, kind: str, status: str, reason: str, message: str) -> Obj | None:
    """Return the condition to write, or None if the Pod has it already."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    current: Obj = next((found for found in conditions if found["type"] == kind), {})
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    if all(current.get(name) == value for name, value in wanted.items()):
        return None
    generation = pod["metadata"].get("generation")
    if generation:
        wanted["observedGeneration"] = generation
    same = current.get("status") == status and current.get("lastTransitionTime")
    wanted["lastTransitionTime"] = same or format_time(clock.now())
    return {**wanted, "lastProbeTime": None}


async def write_status(
    client: Client, pod: Obj, condition: Obj | None, nominated: str | None, *, if_unchanged: bool = False
) -> None:
    """Write condition and nominated node: an empty `nominated` clears it, None leaves it. Raise Conflict if the Pod was
    replaced or, with `if_unchanged`, changed."""
    change: Obj = {}
    if condition is not None:
        change["conditions"] = [condition]
    if nominated is not None and nominated != ((pod.get("status") or {}).get("nominatedNodeName") or ""):
        change["nominatedNodeName"] = nominated or None
    if change:
        meta = pod["metadata"]
        same = {"uid": meta["uid"], **({"resourceVersion": meta["resourceVersion"]} if if_unchanged else {})}
        patch = {"metadata": same, "status": change}
        await client.patch(PODS, meta["name"], patch, meta["namespace"], kind="strategic", subresource="status")
