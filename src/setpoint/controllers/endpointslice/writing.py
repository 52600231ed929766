"""Executes a plan."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.client.interface import ResourceRef
from setpoint.controllers.endpointslice.planning import Plan
from setpoint.controllers.endpointslice.tracker import SliceTracker
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.controllers.trigger_times import with_trigger_time
from setpoint.meta.errors import ApiError, NotFound

Obj = dict[str, Any]


def stamp(result: Plan, since: str) -> None:
    """Annotate the planned slices with the trigger time; see `TriggerTimes`."""
    result.create = [_stamped(made, since) for made in result.create]
    result.update = [_stamped(changed, since) for changed in result.update]


async def write(
    client: Client, resource: ResourceRef, result: Plan, owner: Obj | None, key: str, tracker: SliceTracker
) -> None:
    """Write the plan and record each write in the tracker. Stop at the first failure. Create nothing for an owner that
    is being deleted."""
    if owner is not None and "deletionTimestamp" not in owner["metadata"]:
        for made in result.create:
            try:
                tracker.wrote(key, await client.create(made))
            except ApiError as error:
                if is_namespace_terminating(error):
                    return
                raise
    for changed in result.update:
        tracker.wrote(key, await client.update(changed))
    for doomed in result.delete:
        meta = doomed["metadata"]
        try:
            await client.delete(resource, meta["name"], meta["namespace"], uid=meta["uid"])
        except NotFound:
            continue
        tracker.deleted(key, doomed)


def _stamped(found: Obj, since: str) -> Obj:
    meta = found["metadata"]
    return {**found, "metadata": {**meta, "annotations": with_trigger_time(meta.get("annotations"), since)}}
