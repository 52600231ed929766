"""Topology hints in proportion to the CPU of each zone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from setpoint.controllers.endpointslice.planning import Plan
from setpoint.controllers.endpointslice.topology import Topology, cpu_shares, topology_mode


def node(name: str, zone: str, cpu: str = "4", ready: str = "True", **labels: str) -> Any:
    found = {**labels, **({"topology.kubernetes.io/zone": zone} if zone else {})}
    conditions = [{"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "labels": found},
        "status": {"allocatable": {"cpu": cpu}, "conditions": conditions},
    }


def endpoints(**zones: int) -> list[Any]:
    return [
        {"addresses": [f"{zone}{number}"], "conditions": {"ready": True}, "zone": zone}
        for zone, count in zones.items()
        for number in range(count)
    ]


def hinted(result: Plan) -> Counter[str]:
    return Counter(
        each["hints"]["forZones"][0]["name"]
        for found in (*result.create, *result.update)
        for each in found["endpoints"]
        if each.get("hints")
    )


def test_shares_need_zone_and_cpu_of_every_ready_node() -> None:
    two = [node("a", "x"), node("b", "y", "12")]
    assert cpu_shares(two) == {"x": 0.25, "y": 0.75}
    assert cpu_shares([*two, node("c", "")]) is None
    assert cpu_shares([*two, node("c", "", ready="False")]) == {"x": 0.25, "y": 0.75}
    assert cpu_shares([*two, node("c", "", **{"node-role.kubernetes.io/control-plane": ""})]) is not None
    assert cpu_shares([node("a", "x")]) is None


def test_endpoints_serve_their_own_zone_if_shares_allow() -> None:
    topology = Topology()
    topology.update_nodes([node("a", "x"), node("b", "y")])
    result = Plan(create=[{"endpoints": endpoints(x=2, y=2)}])
    notes = topology.hint(result, "d/s", "IPv4")
    assert hinted(result) == {"x": 2, "y": 2}
    assert [note.message for note in notes] == ["Topology Aware Hints has been enabled, addressType: IPv4"]
    assert not topology.hint(result, "d/s", "IPv4")


def test_a_zone_with_too_many_endpoints_gives_some_to_others() -> None:
    topology = Topology()
    topology.update_nodes([node("a", "x"), node("b", "y")])
    result = Plan(create=[{"endpoints": endpoints(x=5, y=1)}])
    topology.hint(result, "d/s", "IPv4")
    assert hinted(result) == {"x": 3, "y": 3}


@pytest.mark.parametrize(
    ("zones", "problem"),
    [
        ({"x": 1}, "Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4"),
        ({"x": 2, "": 2}, "One or more endpoints do not have a zone specified, addressType: IPv4"),
    ],
)
def test_no_hints_if_the_overload_would_be_too_high(zones: dict[str, int], problem: str) -> None:
    topology = Topology()
    topology.update_nodes([node("a", "x"), node("b", "y")])
    result = Plan(create=[{"endpoints": endpoints(**zones)}])
    (note,) = topology.hint(result, "d/s", "IPv4")
    assert (note.warning, note.reason, note.message) == (True, "TopologyAwareHintsDisabled", problem)
    assert not hinted(result)


def test_a_change_of_nodes_affects_services_with_outdated_hints() -> None:
    topology = Topology()
    topology.update_nodes([node("a", "x"), node("b", "y")])
    topology.hint(Plan(create=[{"endpoints": endpoints(x=3, y=3)}]), "d/s", "IPv4")
    assert topology.update_nodes([node("a", "x"), node("b", "y", "5")]) == []
    assert topology.update_nodes([node("a", "x", "40"), node("b", "y")]) == ["d/s"]
    (note,) = topology.removed("d/s", "IPv4")
    assert note.message == "Topology Aware Hints has been disabled, addressType: IPv4"
    assert not topology.has_hints("d/s")


@pytest.mark.parametrize(
    ("annotations", "on"),
    [
        ({"topology-mode": "Auto"}, True),
        ({"topology-aware-hints": "disabled", "topology-mode": "auto"}, False),
        ({}, False),
    ],
)
def test_which_services_request_hints(annotations: dict[str, str], on: bool) -> None:
    found = {f"service.kubernetes.io/{name}": value for name, value in annotations.items()}
    assert topology_mode({"metadata": {"annotations": found}}) is on
