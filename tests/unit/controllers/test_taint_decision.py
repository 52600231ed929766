"""Computes until when a Pod may stay on a node with NoExecute taints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from setpoint.controllers.pod_gc import surplus_finished
from setpoint.controllers.taint_eviction import AT_ONCE, bound_at, evicting, stays_until
from setpoint.meta.objects import Obj

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def taint(key: str, value: str = "") -> Any:
    return {"key": key, "effect": "NoExecute", "value": value}


def toleration(key: str = "", seconds: int | None = None, **more: str) -> Any:
    made: Obj = {"operator": "Exists", **({"key": key} if key else {}), **more}
    return made if seconds is None else {**made, "tolerationSeconds": seconds}


@pytest.mark.parametrize(
    ("taints", "tolerations", "stays"),
    [
        ([taint("a")], [], AT_ONCE),
        ([taint("a")], [toleration("b")], AT_ONCE),
        ([taint("a")], [toleration("a")], None),
        ([taint("a")], [toleration()], None),
        ([taint("a")], [toleration("a", 60)], 60),
        ([taint("a")], [toleration("a", 0)], AT_ONCE),
        ([taint("a")], [toleration("a", -5)], AT_ONCE),
        ([taint("a"), taint("b")], [toleration("a", 60)], AT_ONCE),
        ([taint("a"), taint("b")], [toleration("a", 60), toleration("b", 30)], 30),
        ([taint("a"), taint("b")], [toleration("a", 60), toleration("b")], 60),
        ([taint("a")], [toleration("a", 60), toleration("a", 5)], 60),
        ([taint("a", "x")], [{"key": "a", "value": "x"}], None),
        ([taint("a", "x")], [{"key": "a", "value": "y"}], AT_ONCE),
        ([taint("a")], [toleration("a", effect="NoSchedule")], AT_ONCE),
        ([], [], None),
    ],
)
def test_stays_until(taints: list[Any], tolerations: list[Any], stays: object) -> None:
    expected = NOW + timedelta(seconds=stays) if isinstance(stays, int) else stays
    assert stays_until(taints, tolerations, lambda _: NOW) == expected


def test_each_toleration_counts_from_the_time_of_its_taint() -> None:
    times = {"a": NOW, "b": NOW - timedelta(seconds=50)}
    tolerations = [toleration("a", 60), toleration("b", 60)]
    found = stays_until([taint("a"), taint("b")], tolerations, lambda each: times[each["key"]])
    assert found == NOW + timedelta(seconds=10)


def test_only_no_execute_taints_evict() -> None:
    taints = [taint("a"), {"key": "b", "effect": "NoSchedule"}]
    assert evicting({"spec": {"taints": taints}}) == [taint("a")]
    assert evicting(None) == []


def test_the_time_of_binding() -> None:
    pod: Any = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert bound_at(pod) == NOW
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}
    pod["status"] = {"conditions": [condition]}
    assert bound_at(pod) == NOW + timedelta(minutes=1)


def test_surplus_finished_pods_evicted_ones_first_then_the_oldest() -> None:
    def ended(name: str, made: int, phase: str = "Succeeded", reason: str = "") -> Any:
        meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{made}Z"}
        return {"metadata": meta, "status": {"phase": phase, "reason": reason}}

    pods = [
        ended("young", 9),
        ended("running", 0, "Running"),
        ended("old", 1),
        ended("evicted", 8, "Failed", "Evicted"),
        ended("b", 5),
        ended("a", 5),
    ]
    assert [pod["metadata"]["name"] for pod in surplus_finished(pods, 1)] == ["evicted", "old", "a", "b"]
    assert surplus_finished(pods, 5) == []
