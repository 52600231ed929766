"""The demands of a Pod on its node: total requests and limits, as the scheduler counts them too, and host ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from setpoint.kinds.core.podspec.resources import (
    Amounts,
    aggregate_limits,
    aggregate_requests,
    is_sidecar,
)
from setpoint.kinds.core.resources import is_pod_level
from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.quantity import add, compare

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.kinds.typed.containers import Container

EVERYWHERE = "0.0.0.0"
_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "200Mi"}
"""Default requests of containers without any, used for scoring."""
_STATUSES = (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses"))


def pod_requests(pod: ObjView) -> Amounts:
    spec, status = pod["spec"], pod.get("status") or {}
    total = _requests(spec, status)
    level = spec.get("resources") or {}
    _override(total, _level(status, level, "requests", status.get("allocatedResources")))
    for name, amount in (spec.get("overhead") or {}).items():
        total[name] = add(total[name], amount) if name in total else amount
    return total


def pod_limits(pod: ObjView) -> Amounts:
    spec, status = pod["spec"], pod.get("status") or {}
    total = _limits(spec, status)
    level = spec.get("resources") or {}
    _override(total, _level(status, level, "limits", None))
    for name, amount in (spec.get("overhead") or {}).items():
        if name in total and compare(total[name], "0"):
            total[name] = add(total[name], amount)
    return total


def has_pod_level_resources(spec: ObjView) -> bool:
    level = spec.get("resources") or {}
    return any(is_pod_level(name) for which in ("requests", "limits") for name in level.get(which) or ())


def _requests(spec: ObjView, status: ObjView) -> Amounts:
    wanted = aggregate_requests(spec)
    reported = _reported(status)
    if not reported:
        return wanted
    impossible = _infeasible(status)

    def allocated(container: ObjView) -> ObjView:
        known = reported.get(container.get("name", "")) or {}
        return known.get("allocatedResources") or _wanted(container, "requests", impossible)

    def actual(container: ObjView) -> ObjView:
        known = reported.get(container.get("name", "")) or {}
        return (known.get("resources") or {}).get("requests") or allocated(container)

    level = (status.get("resources") or {}).get("requests")
    if status.get("allocatedResources") and level:
        parts = [status["allocatedResources"], level]
    else:
        parts = [aggregate_requests(_with(spec, "requests", take)) for take in (allocated, actual)]
    return _maximum(parts if impossible else [wanted, *parts])


def _limits(spec: ObjView, status: ObjView) -> Amounts:
    wanted = aggregate_limits(spec)
    reported = _reported(status)
    if not reported:
        return wanted
    impossible = _infeasible(status)

    def actual(container: ObjView) -> ObjView:
        known = reported.get(container.get("name", "")) or {}
        return (known.get("resources") or {}).get("limits") or _wanted(container, "limits", impossible)

    level = (status.get("resources") or {}).get("limits")
    part = level or aggregate_limits(_with(spec, "limits", actual))
    return _maximum([part] if impossible else [wanted, part])


def _reported(status: ObjView) -> dict[str, ObjView]:
    """Return container statuses by name, if any of them reports resources."""
    found = {
        entry.get("name", ""): entry
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    }
    if any(entry.get("allocatedResources") or entry.get("resources") for entry in found.values()):
        return found
    return {}


def _infeasible(status: ObjView) -> bool:
    return any(
        condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible"
        for condition in status.get("conditions") or ()
    )


def _wanted(container: ObjView, which: str, impossible: bool) -> ObjView:
    return {} if impossible else (container.get("resources") or {}).get(which) or {}


def _with(spec: ObjView, which: str, take: Callable[[ObjView], ObjView]) -> Obj:
    return {
        key: [{**container, "resources": {which: take(container)}} for container in spec.get(key) or ()]
        for key in ("initContainers", "containers")
    }


def _level(status: ObjView, level: ObjView, which: str, allocated: ObjView | None) -> ObjView:
    wanted: ObjView = level.get(which) or {}
    if not wanted or not status.get("resources"):
        return wanted
    parts = [{} if _infeasible(status) else wanted, status["resources"].get(which) or {}, allocated or {}]
    return _maximum(parts)


def _override(total: Amounts, level: ObjView) -> None:
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


HostPort = tuple[str, str, int]
"""Protocol, address, port."""


def host_ports(spec: ObjView) -> tuple[HostPort, ...]:
    """Return the host ports of all containers that run as long as the Pod."""
    return tuple(
        (port.get("protocol") or "TCP", port.get("hostIP") or EVERYWHERE, int(port["hostPort"]))
        for container in _lasting(spec)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )


def _lasting(spec: ObjView) -> Iterator[ObjView]:
    yield from (container for container in spec.get("initContainers") or () if is_sidecar(container))
    yield from spec.get("containers") or ()


def ports_conflict(wanted: HostPort, used: HostPort) -> bool:
    protocol, address, port = wanted
    if (protocol, port) != (used[0], used[2]):
        return False
    return EVERYWHERE in (address, used[1]) or address == used[1]


def nonzero_requests(pod: Pod, requests: Mapping[str, str]) -> Mapping[str, str]:
    """Return `requests` with defaults for every container that has none."""
    level = (pod["spec"].get("resources") or {}).get("requests") or {}
    guessed = {name: text for name, text in _DEFAULT_REQUESTS.items() if not level or name not in requests}
    if not guessed:
        return requests

    def filled(container: Container) -> Container:
        resources = container.get("resources") or {}
        return {**container, "resources": {**resources, "requests": {**guessed, **(resources.get("requests") or {})}}}

    spec = pod["spec"]
    complete = {
        **spec,
        "containers": [filled(container) for container in spec.get("containers") or ()],
        "initContainers": [filled(container) for container in spec.get("initContainers") or ()],
    }
    return pod_requests({**pod, "spec": complete})


def is_fully_allocated(pod: Pod) -> bool:
    """Return whether the node has allocated what the spec requests, or has not reported: the Pod is not being resized,
    and its status adds nothing to its requests."""
    spec: ObjView = pod["spec"]
    status: ObjView = pod.get("status") or {}
    if "allocatedResources" in status or "resources" in status:
        level = (status.get("allocatedResources") or {}, (status.get("resources") or {}).get("requests") or {})
        wanted = {} if spec.get("overhead") or not any(level) else pod_requests({"spec": spec})
        if any(wanted.get(name) != amount for amounts in level for name, amount in amounts.items()):
            return False
    for containers, statuses in _STATUSES:
        given = status.get(statuses)
        if not given:
            continue
        requested = {each["name"]: (each.get("resources") or {}).get("requests") for each in spec.get(containers) or ()}
        for entry in given:
            requests, resources = requested.get(entry["name"]), entry.get("resources")
            allocated, actual = entry.get("allocatedResources"), resources and resources.get("requests")
            if (allocated and allocated != requests) or (actual and actual != requests):
                return False
    for condition in status.get("conditions") or ():  # noqa: SIM110 - it is called for each change of a Pod
        if condition["type"] == "PodResizePending":
            return False
    return True
