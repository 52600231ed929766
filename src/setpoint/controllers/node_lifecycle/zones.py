"""The state of each zone and the rate at which its nodes may be evicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from setpoint.controllers.options import ControllerOptions
from setpoint.meta.clock import Clock

_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_OLD = {_REGION: "failure-domain.beta.kubernetes.io/region", _ZONE: "failure-domain.beta.kubernetes.io/zone"}


class State(Enum):
    INITIAL = "Initial"
    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


def zone_of(node: Mapping[str, Any]) -> str:
    """Return the zone of a node; empty if it has none."""
    labels = node["metadata"].get("labels") or {}
    region, zone = (labels.get(key) or labels.get(_OLD[key]) or "" for key in (_REGION, _ZONE))
    return f"{region}/{zone}" if region or zone else ""


def state_of(ready: Iterable[bool], unhealthy_threshold: float) -> State:
    """Return the state of a zone from the readiness of its nodes."""
    nodes = list(ready)
    well = sum(nodes)
    ill = len(nodes) - well
    if ill and not well:
        return State.FULL
    if ill > 2 and ill / len(nodes) >= unhealthy_threshold:
        return State.PARTIAL
    return State.NORMAL


def eviction_rate(state: State, nodes: int, options: ControllerOptions) -> float:
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
                zone.limiter.rate = eviction_rate(states[name], len(ready_by_zone[name]), self._options)
            zone.state = states[name]
        return Change.ALL_DOWN if all_are else Change.UP_AGAIN if all_were else Change.NONE


class Change(Enum):
    NONE = 0
    ALL_DOWN = 1
    """No node is ready any more: most likely this process lost its connection."""
    UP_AGAIN = 2
    """A node is ready again after all were down."""
