"""Aggregate resources of all containers of a pod.

Regular containers and sidecars run at the same time, so they are added; init containers run one after the other, each
beside the sidecars that were started before it, so their maximum counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from setpoint.meta.quantity import add, compare

Amounts = dict[str, str]


def aggregate_requests(spec: Mapping[str, Any]) -> Amounts:
    return _aggregate(spec, "requests")


def aggregate_limits(spec: Mapping[str, Any]) -> Amounts:
    return _aggregate(spec, "limits")


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Return whether an init container keeps running (restartPolicy Always)."""
    return container.get("restartPolicy") == "Always"


def _aggregate(spec: Mapping[str, Any], which: str) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, which))
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in spec.get("initContainers") or ():
        amounts = _amounts(container, which)
        if is_sidecar(container):
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise(initial, sidecars)
        else:
            together = dict(amounts)
            _add(together, sidecars)
            _raise(initial, together)
    _raise(total, initial)
    return total


def _amounts(container: Mapping[str, Any], which: str) -> Mapping[str, str]:
    return (container.get("resources") or {}).get(which) or {}


def _add(total: Amounts, amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        total[name] = add(total[name], amount) if name in total else amount


def _raise(total: Amounts, amounts: Mapping[str, str]) -> None:
    for name, amount in amounts.items():
        if name not in total or compare(amount, total[name]) > 0:
            total[name] = amount
