"""The array of the fleet, its frames, and searches in it."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import orjson
import pytest

from setpoint.meta.errors import BadRequest
from setpoint.view.fleet import NodeState, PodState, natural_order, pod_state, why_unbound
from setpoint.web.fleet import frames
from setpoint.web.fleet.pages import without_managed_fields
from setpoint.web.fleet.search import Search
from setpoint.web.fleet.state import FleetState, FleetViewer

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


def pod(name: str, node: str = "", status: dict[str, Any] | None = None, namespace: str = "default") -> dict[str, Any]:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec, "status": status or READY}


def node(name: str, zone: str = "", ready: str = "True") -> dict[str, Any]:
    labels = {"labels": {"topology.kubernetes.io/zone": zone}} if zone else {}
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, **labels}, "spec": {}, "status": {"conditions": conditions}}


def container(**state: Any) -> dict[str, Any]:
    return {"name": "c", "state": state}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (READY, PodState.READY),
        (UNREADY, PodState.STARTING),
        ({"phase": "Pending"}, PodState.PENDING),
        ({}, PodState.PENDING),
        (
            {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]},
            PodState.STARTING,
        ),
        (
            {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ImagePullBackOff"})]},
            PodState.FAILING,
        ),
        (
            {"phase": "Pending", "initContainerStatuses": [container(waiting={"reason": "CrashLoopBackOff"})]},
            PodState.FAILING,
        ),
        ({**UNREADY, "containerStatuses": [container(terminated={"exitCode": 1})]}, PodState.FAILING),
        ({**UNREADY, "containerStatuses": [container(terminated={"exitCode": 0})]}, PodState.FINISHING),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [container(terminated={"exitCode": 0})],
                "containerStatuses": [container(waiting={"reason": "PodInitializing"})],
            },
            PodState.STARTING,
        ),
        ({"phase": "Succeeded"}, PodState.SUCCEEDED),
        ({"phase": "Failed"}, PodState.FAILING),
    ],
)
def test_states_of_pods(status: dict[str, Any], expected: PodState) -> None:
    found = pod("a", "n", status)
    found["status"] = status
    assert pod_state(found) == expected
    found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert pod_state(found) == PodState.TERMINATING


def test_names_are_in_natural_order() -> None:
    names = ["node-10", "node-2", "b", "node-2a", "10", "node-"]
    assert sorted(names, key=natural_order) == ["10", "b", "node-", "node-2", "node-2a", "node-10"]


def test_nodes_are_ordered_by_zone_and_name_and_pods_keep_their_slots() -> None:
    fleet = FleetState()
    for name, zone in (("n-10", "b"), ("n-9", "b"), ("n-1", "c"), ("n-2", "a")):
        fleet.put_node(node(name, zone))
    for number in range(3):
        fleet.put_pod(pod(f"p{number}", "n-9"))
    fleet.lay_out()
    assert [each.name for each in fleet.order] == ["n-2", "n-9", "n-10", "n-1"]
    assert [fleet.index_of(f"default/p{number}") for number in range(3)] == [128, 129, 130]
    viewer = FleetViewer()
    fleet.add_viewer(viewer)
    viewer.is_stale = False
    fleet.remove_pod("default/p1")
    fleet.put_pod(pod("p0", "n-9", UNREADY))
    assert viewer.changed == {128, 129} and viewer.wake.is_set()
    fleet.put_pod(pod("new", "n-9"))
    assert fleet.index_of("default/new") == 129, "the first free slot is used again"
    # A node in between moves all that follow.
    fleet.put_node(node("n-3", "a"))
    assert not fleet.is_laid_out
    fleet.lay_out()
    assert viewer.is_stale and fleet.index_of("default/new") == 257


def test_pods_without_a_node_are_in_the_tray() -> None:
    fleet = FleetState()
    message = "0/3 nodes are available: 3 Insufficient cpu."
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}]
    waiting = pod("a", status={"phase": "Pending", "conditions": conditions})
    assert why_unbound(waiting) == message
    fleet.put_pod(waiting)
    assert fleet.unbound == {"default/a": message} and fleet.count == 1
    fleet.put_pod(pod("a", "n"))
    assert not fleet.unbound and fleet.count == 1
    fleet.put_pod(pod("a"))  # another Pod of this name
    assert fleet.unbound == {"default/a": ""} and fleet.count == 1
    fleet.remove_pod("default/a")
    assert fleet.count == 0


def test_a_node_stays_while_pods_are_bound_to_it() -> None:
    fleet = FleetState()
    fleet.put_pod(pod("a", "n"))

    def state() -> NodeState:
        return fleet.nodes["n"].state

    assert state() == NodeState.MISSING
    fleet.put_node(node("n"))
    assert state() == NodeState.READY
    fleet.remove_node("n")
    assert state() == NodeState.MISSING
    fleet.remove_pod("default/a")
    assert not fleet.nodes


def test_a_pod_of_the_same_name_on_another_node() -> None:
    fleet = FleetState()
    fleet.put_pod(pod("a", "n1"))
    fleet.put_pod(pod("a", "n2"))
    fleet.lay_out()
    assert fleet.count == 1 and [each.name for each in fleet.order] == ["n2"]


def test_nodes_with_many_pods_get_more_slots() -> None:
    fleet = FleetState()
    for number in range(129):
        fleet.put_pod(pod(f"p{number}", "n"))
    assert fleet.stride == 256
    for number in range(129, 1030):
        fleet.put_pod(pod(f"p{number}", "n"))
    fleet.lay_out()
    assert fleet.stride == 1024 and len(fleet.nodes["n"].extra) == 6 and fleet.count == 1030
    for number in range(1030):
        fleet.remove_pod(f"default/p{number}")
    assert fleet.count == 0 and not fleet.nodes


def test_a_slow_viewer_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setpoint.web.fleet.state._MAX_CHANGES", 10)
    fleet = FleetState()
    for number in range(20):
        fleet.put_pod(pod(f"p{number}", "n"))
    fleet.lay_out()
    viewer = FleetViewer()
    fleet.add_viewer(viewer)
    viewer.is_stale = False
    for number in range(12):
        fleet.put_pod(pod(f"p{number}", "n", UNREADY))
    assert viewer.is_stale and len(viewer.changed) <= 10


async def test_frames_have_the_states_of_all_pods() -> None:
    fleet, choose = FleetState(), random.Random(3)
    statuses: list[dict[str, Any]] = [READY, UNREADY, {"phase": "Failed"}, {"phase": "Succeeded"}]
    expected: dict[str, int] = {}
    for number in range(3_000):
        each = pod(f"p{number}", f"node-{choose.randrange(700)}", choose.choice(statuses))
        fleet.put_pod(each)
        expected[f"default/p{number}"] = pod_state(each)
    fleet.lay_out()
    found = await Search("p1 succeeded").run(fleet)
    layout, frame = await frames.everything(fleet, found.bits)
    kind, sent_layout, stride, nodes = struct.unpack_from("<B3xIII", frame)
    assert (kind, sent_layout, stride, nodes) == (0, layout, 128, len(fleet.nodes))
    values = zlib.decompress(frame[16:], -15)
    assert len(values) == stride * nodes
    selected = 0
    for name, state in expected.items():
        index = fleet.index_of(name)
        assert index is not None and values[index] & 0x7F == state
        matches = "p1" in name and state == PodState.SUCCEEDED
        assert bool(values[index] & 0x80) == matches
        selected += matches
    assert sum(map(bool, values)) == 3_000 and found.total == selected > 50
    frame = frames.changes(layout, [(5, 3), (700_000, 0x81)])
    assert struct.unpack_from("<B3xII", frame) == (1, layout, 2)
    assert struct.unpack_from("<IIBB", frame, 12) == (5, 700_000, 3, 0x81) and len(frame) == 22


async def test_searches() -> None:
    fleet = FleetState()
    fleet.put_node(node("n1", "a"))
    fleet.put_node(node("n2", "b"))
    fleet.put_pod(pod("web-1", "n1"))
    fleet.put_pod(pod("web-2", "n2", {"phase": "Failed"}))
    fleet.put_pod(pod("web-3", "n2", namespace="other"))
    fleet.lay_out()
    for query, names in (
        ("web", {"default/web-1", "default/web-2", "other/web-3"}),
        ("failing", {"default/web-2"}),
        ("ns:other", {"other/web-3"}),
        ("NS:default node:n2", {"default/web-2"}),
        ("zone:a web", {"default/web-1"}),
        ("", set()),
        ("nothing", set()),
    ):
        assert {each.name for each in (await Search(query).run(fleet)).pods} == names, query
    with pytest.raises(BadRequest):
        Search("a " * 9)


def test_lists_are_decoded_without_managed_fields() -> None:
    fields: dict[str, Any] = {"f:spec": {'k:{"name":"c]}"}': {}}, "f:metadata": {}}
    managed = [{"manager": "m", "fieldsV1": fields}, {"manager": "n", "fieldsV1": {}}]
    tricky = {"note": '},"managedFields":[{"a":1}]},"spec":{"nodeName":"x"}'}
    owners = [{"kind": "ReplicaSet"}]
    items: list[dict[str, Any]] = [
        {"metadata": {"name": "a", "annotations": tricky, "managedFields": managed}, "spec": {"nodeName": "n"}},
        {"metadata": {"name": "b", "managedFields": []}, "spec": {"managedFields": "no"}, "status": {}},
        {"metadata": {"name": "c", "managedFields": managed}, "spec": {}, "status": {"phase": "Running"}},
        # Not where servers write them: they stay, and nothing else is lost.
        {"metadata": {"name": "d", "managedFields": managed}, "status": {}},
        {"metadata": {"managedFields": managed, "name": "e", "ownerReferences": owners}, "spec": {}},
        {"metadata": {"name": "f", "managedFields": managed}, "spec": {}},
    ]
    found = orjson.loads(without_managed_fields(orjson.dumps({"items": items})))
    for number in (0, 2, 5):
        del items[number]["metadata"]["managedFields"]
    assert found["items"] == items
