"""Hints from `trafficDistribution`: the zones or nodes that should consume an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from setpoint.controllers.endpointslice.planning import Plan

Obj = dict[str, Any]

_SAME_NODE = "PreferSameNode"
_CLOSE = ("PreferClose", "PreferSameZone", _SAME_NODE)


def traffic_distribution(service: Obj) -> str:
    """Return the traffic distribution if it requires hints, otherwise an empty string."""
    asked = service["spec"].get("trafficDistribution") or ""
    return asked if asked in _CLOSE else ""


def is_ready_endpoint(endpoint: Obj) -> bool:
    return (endpoint.get("conditions") or {}).get("ready") is True


def hint_close(result: Plan, distribution: str) -> None:
    """Give every ready endpoint a hint for its own zone and, if requested, its own node."""
    nodes = distribution == _SAME_NODE
    _rehint(result, lambda endpoint: _close(endpoint, nodes) if is_ready_endpoint(endpoint) else endpoint.get("hints"))


def remove_hints(result: Plan) -> None:
    _rehint(result, lambda _: None)


def _close(endpoint: Obj, nodes: bool) -> Obj | None:
    made: Obj = {}
    if endpoint.get("zone"):
        made["forZones"] = [{"name": endpoint["zone"]}]
    if nodes and endpoint.get("nodeName"):
        made["forNodes"] = [{"name": endpoint["nodeName"]}]
    return made or None


def _rehint(result: Plan, hints_of: Callable[[Obj], Obj | None]) -> None:
    for found in (*result.create, *result.update):
        found["endpoints"] = [with_hints(endpoint, hints_of(endpoint)) for endpoint in found["endpoints"]]
    for found in tuple(result.unchanged):
        endpoints = found.get("endpoints") or ()
        if any(endpoint.get("hints") != hints_of(endpoint) for endpoint in endpoints):
            result.unchanged.remove(found)
            made = [with_hints(endpoint, hints_of(endpoint)) for endpoint in endpoints]
            result.update.append({**found, "endpoints": made})


def with_hints(endpoint: Obj, hints: Obj | None) -> Obj:
    kept = {key: value for key, value in endpoint.items() if key != "hints"}
    return {**kept, "hints": hints} if hints else kept
