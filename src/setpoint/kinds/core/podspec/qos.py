"""The quality-of-service class of a pod, from what its containers request and may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.meta.quantity import compare

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"


def qos_class(pod: Mapping[str, Any]) -> str:
    spec = pod.get("spec") or {}
    level = spec.get("resources")
    if level and (level.get("requests") or level.get("limits")):
        return _of_requirements(level)
    found = ""
    for key in ("initContainers", "containers"):
        for container in spec.get(key) or ():
            one = _of_requirements(container.get("resources"))
            if one == BURSTABLE or (found and one != found):
                return BURSTABLE
            found = one
    return found or BEST_EFFORT


def _of_requirements(resources: Mapping[str, Any] | None) -> str:
    if not resources:
        return BEST_EFFORT
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    cpu = _of_one(requests.get("cpu", "0"), limits.get("cpu", "0"))
    return cpu if cpu == _of_one(requests.get("memory", "0"), limits.get("memory", "0")) else BURSTABLE


def _of_one(request: str, limit: str) -> str:
    if request != limit and compare(request, limit) != 0:
        return BURSTABLE
    return BEST_EFFORT if request == "0" or compare(request, "0") == 0 else GUARANTEED
