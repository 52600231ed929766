"""The time of the change that triggered an update of endpoints, for the annotation by which latency is measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from setpoint.controllers.conditions import condition
from setpoint.controllers.service_pods import LAST_CHANGE

Obj = dict[str, Any]


class TriggerTimes:
    """Tracks the times of changes per Service.

    Times are compared as text, in the one UTC format that objects use. The state only serves an annotation; after a
    restart it falls back to the creation time of the Service.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, dict[str, str]]] = {}

    def since(self, key: str, service: Obj, pods: Iterable[Obj]) -> str:
        """Return the earliest change since the previous call, or an empty string if nothing with a time changed."""
        before = self._seen.get(key)
        made = service["metadata"].get("creationTimestamp") or ""
        now = {pod["metadata"]["name"]: stamp for pod in pods if (stamp := _ready_since(pod))}
        self._seen[key] = made, now
        if before is None:
            return made
        changed = [stamp for name, stamp in now.items() if stamp > before[1].get(name, "")]
        if made > before[0]:
            changed.append(made)
        return min(changed, default="")

    def forget(self, key: str) -> None:
        self._seen.pop(key, None)


def _ready_since(pod: Obj) -> str:
    return (condition(pod, "Ready") or {}).get("lastTransitionTime") or ""


def with_trigger_time(annotations: dict[str, str] | None, stamp: str) -> dict[str, str]:
    kept = {key: value for key, value in (annotations or {}).items() if key != LAST_CHANGE}
    return {**kept, LAST_CHANGE: stamp} if stamp else kept
