"""Lanes, buckets and gaps of a timeline."""

from __future__ import annotations

from setpoint.meta.cause import Claim, WriteCause
from setpoint.view.timeline import KUBELETS, MAX_GAPS, MAX_LANES, OTHERS, Timeline, lane_of


def test_lanes() -> None:
    controller = "system:serviceaccount:kube-system:replicaset-controller"
    assert lane_of(WriteCause(0, "create", controller, claim=Claim("replicaset-controller/a.1"))) == (
        "replicaset-controller"
    )
    assert lane_of(WriteCause(0, "patch", "system:node:node-1", "kubelet")) == KUBELETS
    assert lane_of(WriteCause(0, "patch", "system:node:node-1<admin", "kubelet")) == KUBELETS
    assert lane_of(WriteCause(0, "patch", "alice", "kubectl")) == "alice (kubectl)"
    assert lane_of(None) == "an unknown client"


def test_lanes_and_gaps_are_bounded() -> None:
    timeline = Timeline(1, 2_000, 10)
    for number in range(1, 2_001):
        timeline.add(number, WriteCause(number * 10_000, "create", f"user-{number}"), False)
    found = timeline.to_json()
    lanes = {lane for bucket in found["buckets"] for lane in bucket["writes"]}
    assert len(lanes) == MAX_LANES + 1 and OTHERS in lanes
    assert len(found["gaps"]) == MAX_GAPS and len(found["buckets"]) == 10
    assert sum(n for bucket in found["buckets"] for n in bucket["writes"].values()) == 2_000


def test_routine_writes_do_not_end_a_gap() -> None:
    timeline = Timeline(1, 10, 10)
    timeline.add(1, WriteCause(1_000, "create", "a"), False)
    for number in range(2, 9):
        timeline.add(number, WriteCause(1_000 + number * 2_000, "update", "b"), True)
    timeline.add(9, WriteCause(20_000, "create", "a"), False)
    assert timeline.to_json()["gaps"] == [{"after": 1, "begin": 1_000, "end": 20_000}]


def test_writes_without_a_recorded_time_are_counted() -> None:
    timeline = Timeline(1, 2, 1)
    timeline.add(1, None, False)
    timeline.add(2, None, False)
    assert timeline.to_json() == {
        "buckets": [{"first": 1, "last": 2, "writes": {"an unknown client": 2}}],
        "gaps": [],
    }
