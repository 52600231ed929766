"""Clears the DisruptionTarget condition of Pods that were not deleted within two minutes."""

from __future__ import annotations

from typing import Any

from setpoint.client import Client
from setpoint.controllers.conditions import condition
from setpoint.controllers.pods import phase
from setpoint.meta.clock import Clock
from setpoint.meta.times import format_time, parse_time
from setpoint.reconcile import Informer, Result

Obj = dict[str, Any]

_TARGET = "DisruptionTarget"
_TIMEOUT = 120.0


class StaleConditions:
    def __init__(self, client: Client, clock: Clock, pods: Informer) -> None:
        self._client = client
        self._clock = clock
        self._pods = pods

    def stale_in(self, pod: Obj) -> float | None:
        """Return the seconds until the condition is stale, or None if the Pod has none that can become stale."""
        found = condition(pod, _TARGET)
        if found is None or found["status"] != "True" or found.get("reason") == "TerminationByKubelet":
            return None
        if "deletionTimestamp" in pod["metadata"] or phase(pod) in ("Succeeded", "Failed"):
            return None
        since = found.get("lastTransitionTime")
        return max(0.0, _TIMEOUT - (self._clock.now() - parse_time(since)).total_seconds()) if since else 0.0

    async def reconcile(self, key: str) -> Result | None:
        pod = self._pods.get(key)
        left = self.stale_in(pod) if pod is not None else None
        if pod is None or left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        cleared = {"type": _TARGET, "status": "False", "lastTransitionTime": format_time(self._clock.now())}
        if "generation" in pod["metadata"]:
            cleared["observedGeneration"] = pod["metadata"]["generation"]
        conditions = [cleared if each["type"] == _TARGET else each for each in pod["status"]["conditions"]]
        await self._client.update({**pod, "status": {**pod["status"], "conditions": conditions}}, subresource="status")
        return None
