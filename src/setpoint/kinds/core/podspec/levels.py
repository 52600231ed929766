"""Requests and limits of a pod as a whole, where only some of them are given."""

from __future__ import annotations

from typing import Any

from setpoint.kinds.core.podspec.aggregate import aggregate_limits, aggregate_requests
from setpoint.kinds.core.podspec.options import all_containers
from setpoint.kinds.core.resources import is_huge_page, is_overcommit_allowed, is_pod_level
from setpoint.meta.quantity import compare


def default_pod_level_resources(spec: dict[str, Any]) -> None:
    """Apply pod-level defaults, after admission when the containers are final; the order of the three steps matters."""
    resources = spec.get("resources")
    if not resources or not (resources.get("requests") or resources.get("limits")):
        return
    # The objects may be shared with a stored one.
    resources = spec["resources"] = dict(resources)
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    for name, amount in aggregate_limits(spec).items():
        if is_huge_page(name) and name not in requests:
            limits.setdefault(name, amount)
    for name, amount in aggregate_requests(spec).items():
        if is_pod_level(name) and is_overcommit_allowed(name):
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if is_pod_level(name):
            requests.setdefault(name, amount)
    open_names = {name for name in requests if is_pod_level(name) and name not in limits}
    for container in all_containers(spec):
        open_names &= ((container.get("resources") or {}).get("limits") or {}).keys()
    if open_names:
        totals = aggregate_limits(spec)
        for name in requests:
            if name in open_names and name in totals:
                # A request above what the containers may use raises the limit, or the pod would be invalid.
                limits[name] = requests[name] if compare(requests[name], totals[name]) > 0 else totals[name]
    if requests:
        resources["requests"] = requests
    if limits:
        resources["limits"] = limits
