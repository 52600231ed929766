"""Total requests and limits of a Pod: its containers, its pod-level resources, its overhead.

A Pod that is being resized counts with the maximum of the desired, the allocated and the actual resources; an
infeasible resize is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from setpoint.kinds.core.podspec.aggregate import Amounts, aggregate_limits, aggregate_requests
from setpoint.kinds.core.resources import is_pod_level
from setpoint.meta.quantity import add, compare

Item = Mapping[str, Any]


def pod_requests(pod: Item) -> Amounts:
    spec, status = pod["spec"], pod.get("status") or {}
    total = _requests(spec, status)
    level = spec.get("resources") or {}
    _override(total, _level(status, level, "requests", status.get("allocatedResources")))
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = add(total[name], amount) if name in total else amount
    return total


def pod_limits(pod: Item) -> Amounts:
    spec, status = pod["spec"], pod.get("status") or {}
    total = _limits(spec, status)
    level = spec.get("resources") or {}
    _override(total, _level(status, level, "limits", None))
    for name, amount in (spec.get("overhead") or {}).items():
        if name in total and compare(total[name], "0"):
            total[name] = add(total[name], amount)
    return total


def has_pod_level_resources(spec: Item) -> bool:
    level = spec.get("resources") or {}
    return any(is_pod_level(name) for which in ("requests", "limits") for name in level.get(which) or ())


def _requests(spec: Item, status: Item) -> Amounts:
    wanted = aggregate_requests(spec)
    reported = _reported(status)
    if not reported:
        return wanted
    impossible = _infeasible(status)

    def allocated(container: Item) -> Item:
        known = reported.get(container.get("name", "")) or {}
        return known.get("allocatedResources") or _wanted(container, "requests", impossible)

    def actual(container: Item) -> Item:
        known = reported.get(container.get("name", "")) or {}
        return (known.get("resources") or {}).get("requests") or allocated(container)

    level = (status.get("resources") or {}).get("requests")
    if status.get("allocatedResources") and level:
        parts = [status["allocatedResources"], level]
    else:
        parts = [aggregate_requests(_with(spec, "requests", take)) for take in (allocated, actual)]
    return _maximum(parts if impossible else [wanted, *parts])


def _limits(spec: Item, status: Item) -> Amounts:
    wanted = aggregate_limits(spec)
    reported = _reported(status)
    if not reported:
        return wanted
    impossible = _infeasible(status)

    def actual(container: Item) -> Item:
        known = reported.get(container.get("name", "")) or {}
        return (known.get("resources") or {}).get("limits") or _wanted(container, "limits", impossible)

    level = (status.get("resources") or {}).get("limits")
    part = level or aggregate_limits(_with(spec, "limits", actual))
    return _maximum([part] if impossible else [wanted, part])


def _reported(status: Item) -> dict[str, Item]:
    """Return container statuses by name, if any of them reports resources."""
    found = {
        entry.get("name", ""): entry
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    }
    if any(entry.get("allocatedResources") or entry.get("resources") for entry in found.values()):
        return found
    return {}


def _infeasible(status: Item) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )


def _wanted(container: Item, which: str, impossible: bool) -> Item:
    return {} if impossible else (container.get("resources") or {}).get(which) or {}


def _with(spec: Item, which: str, take: Callable[[Item], Item]) -> dict[str, Any]:
    return {
        key: [{**container, "resources": {which: take(container)}} for container in spec.get(key) or ()]
        for key in ("initContainers", "containers")
    }


def _level(status: Item, level: Item, which: str, allocated: Item | None) -> Item:
    wanted: Item = level.get(which) or {}
    if not wanted or not status.get("resources"):
        return wanted
    parts = [{} if _infeasible(status) else wanted, status["resources"].get(which) or {}, allocated or {}]
    return _maximum(parts)


def _override(total: Amounts, level: Item) -> None:
    for name, amount in level.items():
        if is_pod_level(name):
            total[name] = amount


def _maximum(parts: list[Any]) -> Amounts:
    result: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            if name not in result or compare(amount, result[name]) > 0:
                result[name] = amount
    return result
