"""The state of each zone with the rate of its evictions, taints that correspond to conditions, and deprecated label
aliases.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock
from setpoint.meta.errors import Conflict
from setpoint.meta.node_fit import NO_EXECUTE, NO_SCHEDULE
from setpoint.meta.node_labels import (
    ARCH,
    DEPRECATED,
    OS,
    REGION,
    TAINT_DISK_PRESSURE,
    TAINT_MEMORY_PRESSURE,
    TAINT_NETWORK_UNAVAILABLE,
    TAINT_NOT_READY,
    TAINT_PID_PRESSURE,
    TAINT_UNREACHABLE,
    TAINT_UNSCHEDULABLE,
    ZONE,
)
from setpoint.meta.objects import ObjView
from setpoint.meta.times import format_time

if TYPE_CHECKING:
    from setpoint.kinds.typed import Node

_DEPRECATED_NAMES = {label: deprecated for deprecated, label in DEPRECATED.items()}
TaintId = tuple[str, str]
"""Key and effect, which identify a taint."""
NODES = builtin("nodes")
_BY_CONDITION = {
    ("Ready", "False"): TAINT_NOT_READY,
    ("Ready", "Unknown"): TAINT_UNREACHABLE,
    ("MemoryPressure", "True"): TAINT_MEMORY_PRESSURE,
    ("DiskPressure", "True"): TAINT_DISK_PRESSURE,
    ("NetworkUnavailable", "True"): TAINT_NETWORK_UNAVAILABLE,
    ("PIDPressure", "True"): TAINT_PID_PRESSURE,
}
_MANAGED_TAINTS = {*_BY_CONDITION.values(), TAINT_UNSCHEDULABLE}
EVICTING: tuple[TaintId, TaintId] = ((TAINT_NOT_READY, NO_EXECUTE), (TAINT_UNREACHABLE, NO_EXECUTE))
_ATTEMPTS, _PAUSE = 5, 0.1


class State(Enum):
    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


def zone_of(node: Node) -> str:
    """Return the zone of a node; empty if it has none."""
    labels = node["metadata"].get("labels") or {}
    region, zone = (labels.get(key) or labels.get(_DEPRECATED_NAMES[key]) or "" for key in (REGION, ZONE))
    return f"{region}/{zone}" if region or zone else ""


def state_of(ready: Iterable[bool], unhealthy_threshold: float) -> State:
    """Return the state of a zone from the readiness of its nodes."""
    nodes = list(ready)
    healthy = sum(nodes)
    unhealthy = len(nodes) - healthy
    if unhealthy and not healthy:
        return State.FULL
    if unhealthy > 2 and unhealthy / len(nodes) >= unhealthy_threshold:
        return State.PARTIAL
    return State.NORMAL


def _eviction_rate(state: State, nodes: int, options: ControllerOptions) -> float:
    """Return the eviction rate in nodes per second. A full disruption of one zone does not stop evictions; only a
    disruption of all zones does, which is handled by the caller."""
    if state is not State.PARTIAL:
        return options.node_eviction_rate
    return options.secondary_node_eviction_rate if nodes > options.large_cluster_size_threshold else 0.0


class Limiter:
    """Allows `rate` evictions per second, one at a time."""

    def __init__(self, clock: Clock, rate: float) -> None:
        self._clock = clock
        self._rate = rate
        self._next = clock.monotonic()

    @property
    def rate(self) -> float:
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        if rate == self._rate:
            return
        now = self._clock.monotonic()
        if rate > 0:
            # Pending waits continue at the new rate.
            waited_for = self._rate > 0 and now < self._next
            self._next = now + 1 / rate if waited_for else now
        self._rate = rate

    def wait(self) -> float | None:
        """Return the seconds until the next eviction is allowed, or None if the rate is zero."""
        return max(0.0, self._next - self._clock.monotonic()) if self._rate > 0 else None

    def take(self) -> None:
        self._next = self._clock.monotonic() + 1 / self._rate


@dataclass(slots=True)
class Zone:
    """The evictions of a zone: how fast they are, and why."""

    limiter: Limiter
    state: State = State.INITIAL


class Zones:
    def __init__(self, clock: Clock, options: ControllerOptions) -> None:
        self._clock = clock
        self._options = options
        self._by_name: dict[str, Zone] = {}

    def limiter(self, name: str) -> Limiter:
        return self._zone(name).limiter

    def state(self, name: str) -> State:
        return self._zone(name).state

    def _zone(self, name: str) -> Zone:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Zone(Limiter(self._clock, self._options.node_eviction_rate))
        return found

    def assess(self, ready_by_zone: Mapping[str, list[bool]]) -> Change:
        """Set the eviction rate of each zone from the readiness of its nodes."""
        states = {
            name: state_of(ready, self._options.unhealthy_zone_threshold) for name, ready in ready_by_zone.items()
        }
        for name in [name for name in self._by_name if name not in states]:
            del self._by_name[name]
        zones = {name: self._zone(name) for name in states}
        all_were = all(zone.state is State.FULL for zone in zones.values())
        all_are = all(state is State.FULL for state in states.values())
        if all_are and all_were:
            return Change.NONE
        for name, zone in zones.items():
            if all_are:
                zone.limiter.rate = 0.0
            elif all_were or zone.state is not states[name]:
                zone.limiter.rate = _eviction_rate(states[name], len(ready_by_zone[name]), self._options)
            zone.state = states[name]
        return Change.ALL_DOWN if all_are else Change.UP_AGAIN if all_were else Change.NONE


class Change(Enum):
    NONE = 0
    ALL_DOWN = 1
    """No node is ready any more: most likely this process lost its connection."""
    UP_AGAIN = 2
    """A node is ready again after all were down."""


# -- taints -----------------------------------------------------------------------------------------------------------


def ids_of(taints: Iterable[Mapping[str, Any]]) -> set[TaintId]:
    return {(taint["key"], taint["effect"]) for taint in taints}


def taints_of(node: Node) -> list[ObjView]:
    return list((node.get("spec") or {}).get("taints") or ())


def scheduling_changes(node: Node) -> tuple[list[TaintId], list[TaintId]]:
    """Return the NoSchedule taints that are missing, and those that no longer apply."""
    keys = [
        _BY_CONDITION.get((found["type"], found["status"]))
        for found in (node.get("status") or {}).get("conditions") or ()
    ]
    if node["spec"].get("unschedulable"):
        keys.append(TAINT_UNSCHEDULABLE)
    wanted = [(key, NO_SCHEDULE) for key in dict.fromkeys(keys) if key]
    there = [(taint["key"], taint["effect"]) for taint in taints_of(node)]
    ours = [each for each in there if each[1] == NO_SCHEDULE and each[0] in _MANAGED_TAINTS]
    return [each for each in wanted if each not in ours], [each for each in ours if each not in wanted]


def evicting_taint(ready: str) -> TaintId | None:
    """Return the NoExecute taint for this status of the Ready condition, or None."""
    return {"False": EVICTING[0], "Unknown": EVICTING[1]}.get(ready)


def changed_taints(
    taints: list[ObjView], add: Collection[TaintId], remove: Collection[TaintId], now: datetime
) -> list[ObjView] | None:
    """Return the changed taints, or None if nothing changes. A taint that is added again gets a new time."""
    there = ids_of(taints)
    missing = [each for each in add if each not in there]
    if not missing and there.isdisjoint(remove):
        return None
    remaining = [taint for taint in taints if (taint["key"], taint["effect"]) not in remove]
    stamp = format_time(now)
    return [*remaining, *({"key": key, "effect": effect, "timeAdded": stamp} for key, effect in missing)]


async def swap_taints(
    client: Client, clock: Clock, node: Node, add: Collection[TaintId], remove: Collection[TaintId]
) -> bool:
    """Change the taints and return whether that changed anything. Starts with the given node; taints of others are
    preserved on conflicts."""
    name = node["metadata"]["name"]
    for attempt in range(_ATTEMPTS):
        wanted = changed_taints(taints_of(node), add, remove, clock.now())
        if wanted is None:
            return False
        meta = {"resourceVersion": node["metadata"]["resourceVersion"], "uid": node["metadata"]["uid"]}
        try:
            await client.patch(NODES, name, {"metadata": meta, "spec": {"taints": wanted or None}})
            return True
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
        if attempt:
            await clock.sleep(_PAUSE)
        fresh = cast("Node", await client.get(NODES, name))
        if fresh["metadata"]["uid"] != node["metadata"]["uid"]:
            return False
        node = fresh
    return False


def missing_labels(node: Node) -> dict[str, str]:
    labels = node["metadata"].get("labels") or {}
    names = {_DEPRECATED_NAMES[name]: name for name in (OS, ARCH)}
    return {old: labels[name] for old, name in names.items() if name in labels and labels.get(old) != labels[name]}
