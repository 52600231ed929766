"""Node health, taints for node conditions, and eviction rates of zones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from setpoint.controllers.node_lifecycle.health import Health, observe, unknown_conditions
from setpoint.controllers.node_lifecycle.taints import (
    Change,
    Limiter,
    State,
    Zones,
    changed_taints,
    missing_labels,
    scheduling_changes,
    state_of,
    zone_of,
)
from setpoint.controllers.options import ControllerOptions

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PREFIX = "node.kubernetes.io/"


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.at)

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError


def node(*conditions: tuple[str, str], **spec: Any) -> Any:
    made = [{"type": kind, "status": status, "lastHeartbeatTime": "1"} for kind, status in conditions]
    meta = {"name": "n", "creationTimestamp": "2026-01-01T11:59:00Z"}
    return {"metadata": meta, "spec": spec, "status": {"conditions": made}}


def lease(renewed: str) -> Any:
    return {"spec": {"renewTime": renewed}}


def test_lease_and_status_are_heartbeats() -> None:
    ready = node(("Ready", "True"))
    health = observe(None, ready, None, 100.0, NOW)
    assert health.last_heartbeat == 100.0
    health = observe(health, ready, None, 110.0, NOW)
    assert health.last_heartbeat == 100.0
    health = observe(health, ready, lease("b"), 120.0, NOW)
    assert health.last_heartbeat == 120.0
    health = observe(health, ready, lease("b"), 130.0, NOW)
    assert health.last_heartbeat == 120.0
    later = node(("Ready", "True"))
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
    assert observe(health, later, lease("b"), 140.0, NOW).last_heartbeat == 140.0


def test_a_node_without_status_counts_from_its_creation() -> None:
    assert observe(None, node(), None, 100.0, NOW).last_heartbeat == 40.0


def test_the_controllers_own_writes_are_no_heartbeat() -> None:
    health = Health(40.0, {"type": "Ready", "lastHeartbeatTime": "1", "status": "Unknown"})
    assert observe(health, node(("Ready", "Unknown")), None, 200.0, NOW).last_heartbeat == 40.0


def test_conditions_become_unknown() -> None:
    changed = unknown_conditions(
        node(("Ready", "True"), ("NetworkUnavailable", "False"), ("DiskPressure", "False")), NOW
    )
    assert changed is not None
    assert {each["type"]: (each["status"], each.get("reason")) for each in changed} == {
        "Ready": ("Unknown", "NodeStatusUnknown"),
        "NetworkUnavailable": ("False", None),
        "DiskPressure": ("Unknown", "NodeStatusUnknown"),
        "MemoryPressure": ("Unknown", "NodeStatusNeverUpdated"),
        "PIDPressure": ("Unknown", "NodeStatusNeverUpdated"),
    }
    assert unknown_conditions(node(("Ready", "Unknown")), NOW) is None


@pytest.mark.parametrize(
    ("found", "add", "remove"),
    [
        (node(("Ready", "True")), [], []),
        (node(("Ready", "False"), ("MemoryPressure", "True")), ["not-ready", "memory-pressure"], []),
        (node(("Ready", "Unknown"), unschedulable=True), ["unreachable", "unschedulable"], []),
        (node(("Ready", "True"), taints=[{"key": PREFIX + "not-ready", "effect": "NoSchedule"}]), [], ["not-ready"]),
        (node(("Ready", "True"), taints=[{"key": PREFIX + "not-ready", "effect": "NoExecute"}]), [], []),
        (node(("Ready", "True"), taints=[{"key": "mine", "effect": "NoSchedule"}]), [], []),
    ],
)
def test_taints_by_condition(found: Any, add: list[str], remove: list[str]) -> None:
    expected = [(PREFIX + key, "NoSchedule") for key in add], [(PREFIX + key, "NoSchedule") for key in remove]
    assert scheduling_changes(found) == expected


def test_foreign_taints_stay() -> None:
    mine = {"key": "mine", "effect": "NoExecute", "value": "x"}
    old = {"key": "old", "effect": "NoExecute"}
    changed = changed_taints([mine, old], [("new", "NoExecute")], [("old", "NoExecute")], NOW)
    assert changed == [mine, {"key": "new", "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}]
    assert changed_taints([mine], [("mine", "NoExecute")], [("old", "NoExecute")], NOW) is None


def test_deprecated_labels_follow_the_current_ones() -> None:
    labels = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "plan9", "kubernetes.io/arch": "arm64"}
    found: Any = {"metadata": {"labels": labels}}
    assert missing_labels(found) == {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}
    assert missing_labels({"metadata": {}}) == {}


@pytest.mark.parametrize(
    ("ready", "ill", "state"),
    [
        (0, 0, State.NORMAL),
        (0, 1, State.FULL),
        (1, 2, State.NORMAL),
        (2, 3, State.PARTIAL),
        (3, 3, State.NORMAL),
        (9, 11, State.PARTIAL),
        (10, 11, State.NORMAL),
    ],
)
def test_state_of_a_zone(ready: int, ill: int, state: State) -> None:
    assert state_of([True] * ready + [False] * ill, 0.55) is state


def test_eviction_rates_depend_on_the_state_of_zones() -> None:
    zones = Zones(Clock(), ControllerOptions())
    assert zones.assess({"a": [True] * 4, "b": [True] * 4}) is Change.NONE
    assert zones.assess({"a": [False] * 4, "b": [True] * 4}) is Change.NONE
    assert (zones.state("a"), zones.limiter("a").rate) == (State.FULL, 0.1)
    assert zones.assess({"a": [False] * 3 + [True], "b": [False] * 40 + [True] * 20}) is Change.NONE
    assert (zones.limiter("a").rate, zones.limiter("b").rate) == (0.0, 0.01)
    assert zones.assess({"a": [False] * 4, "b": [False] * 60}) is Change.ALL_DOWN
    assert (zones.limiter("a").rate, zones.limiter("b").rate) == (0.0, 0.0)
    assert zones.assess({"a": [False] * 4, "b": [False] * 60}) is Change.NONE
    assert zones.assess({"a": [False] * 4, "b": [True] * 60}) is Change.UP_AGAIN
    assert (zones.limiter("a").rate, zones.limiter("b").rate) == (0.1, 0.1)
    assert Zones(Clock(), ControllerOptions()).assess({}) is Change.NONE


def test_the_limiter_spaces_evictions() -> None:
    clock = Clock()
    limiter = Limiter(clock, 0.1)
    assert limiter.wait() == 0.0
    limiter.take()
    assert limiter.wait() == 10.0
    clock.at = 4.0
    assert limiter.wait() == 6.0
    limiter.rate = 0.01
    assert limiter.wait() == 100.0
    limiter.rate = 0.0
    assert limiter.wait() is None
    clock.at = 50.0
    limiter.rate = 0.1
    assert limiter.wait() == 0.0


def test_names_of_zones() -> None:
    def labelled(**labels: str) -> Any:
        return {
            "metadata": {"labels": {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}}
        }

    assert zone_of({"metadata": {}}) == ""
    assert zone_of(labelled(topology_kubernetes_io__zone="a")) == "/a"
    assert zone_of(labelled(topology_kubernetes_io__region="r", topology_kubernetes_io__zone="a")) == "r/a"
