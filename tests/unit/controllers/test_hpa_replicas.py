"""The autoscaler's arithmetic, with upstream's own cases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from setpoint.controllers.podautoscaler.metrics import MetricsFailure, PodMetric
from setpoint.controllers.podautoscaler.replicas import (
    Bounds,
    History,
    StartupGrace,
    Tolerances,
    by_average_value,
    by_usage,
    by_utilization,
    by_value,
    group_pods,
    highest_recent,
    limit,
    limit_rate,
    requests_of,
    stabilize,
)
from setpoint.meta.objects import Obj
from setpoint.meta.times import format_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STARTUP_GRACE = StartupGrace(120, 10)
TOLERANCES = Tolerances()


def a_pod(
    name: str,
    request: str = "1",
    *,
    phase: str = "Running",
    ready: str = "True",
    started: float = 7200,
    since: float = 7200,
    **meta: Any,
) -> Any:
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": format_time(NOW - timedelta(seconds=since))}
    resources = {"requests": {"cpu": request}} if request else {}
    return {
        "metadata": {"name": name, **meta},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
        "status": {
            "phase": phase,
            "startTime": format_time(NOW - timedelta(seconds=started)),
            "conditions": [condition],
        },
    }


def metrics(*values: int | None) -> dict[str, PodMetric]:
    return {f"p{i}": PodMetric(value, NOW, 60) for i, value in enumerate(values) if value is not None}


def utilization(current: int, target: int, pods: list[Any], *values: int | None) -> tuple[int, int, int]:
    measured = metrics(*values)
    groups = group_pods(pods, measured, "cpu", STARTUP_GRACE, NOW)
    return by_utilization(current, target, measured, groups, requests_of(pods, "cpu", ""), TOLERANCES)


def pods(count: int, **each: Any) -> list[Any]:
    return [a_pod(f"p{i}", **each) for i in range(count)]


@pytest.mark.parametrize(
    ("current", "target", "values", "expected"),
    [
        (3, 30, (300, 500, 700), (5, 50, 500)),
        (5, 50, (100, 300, 500, 250, 250), (3, 28, 280)),
        (3, 100, (900, 1000, 1100), (3, 100, 1000)),
        (3, 100, (1010, 1030, 1020), (3, 102, 1020)),
        (3, 100, (1160, 1160, 1160), (4, 116, 1160)),
        # Not all were measured: up as if they used nothing, down as if they used all they asked for.
        (4, 30, (600, None, None, 700), (4, 65, 650)),
        (4, 30, (900, None, None, 900), (6, 90, 900)),
        (3, 100, (400, 95, None), (2, 24, 247)),
        (2, 100, (1000, None), (2, 100, 1000)),
        (2, 100, (1900, None), (2, 190, 1900)),
        (2, 100, (600, None), (2, 60, 600)),
    ],
)
def test_utilization(current: int, target: int, values: tuple[int | None, ...], expected: Any) -> None:
    assert utilization(current, target, pods(len(values)), *values) == expected


def test_utilization_needs_requests() -> None:
    with pytest.raises(MetricsFailure, match="missing request for cpu in container c of Pod p0"):
        requests_of(pods(1, request=""), "cpu", "")
    with pytest.raises(MetricsFailure, match="container x not found in Pod p0"):
        requests_of(pods(1), "cpu", "x")


def test_starting_pods_are_not_counted() -> None:
    hot = pods(3)
    hot[0] = a_pod("p0", ready="False", started=60, since=60)
    assert utilization(3, 30, hot, 300, 500, 700)[0] == 4
    hot[2] = a_pod("p2", ready="False", started=60, since=60)
    assert utilization(3, 30, hot, 400, 500, 600)[0] == 3
    # Ready for half a minute, measured over a minute: what is measured is the start.
    hot[1] = a_pod("p1", started=60, since=30)
    with pytest.raises(MetricsFailure, match=r"did not receive metrics for targeted pods \(pods might be unready\)"):
        utilization(3, 30, hot, 400, 500, 600)


def test_terminating_and_failed_pods_are_ignored() -> None:
    some = [*pods(2), a_pod("p2", phase="Failed"), a_pod("p3", deletionTimestamp="2026-01-01T12:00:00Z")]
    assert utilization(2, 50, some, 500, 500, 5000, 5000) == (2, 50, 500)


def test_a_pod_that_was_ready_before_counts() -> None:
    groups = group_pods([a_pod("p0", ready="False", started=3600, since=60)], metrics(1), "cpu", STARTUP_GRACE, NOW)
    assert groups.ready == 1
    groups = group_pods([a_pod("p0", ready="False", started=3600, since=3595)], metrics(1), "cpu", STARTUP_GRACE, NOW)
    assert groups.unready == {"p0"}


@pytest.mark.parametrize(
    ("current", "target", "values", "expected"),
    [
        (3, 15000, (20000, 10000, 30000), (4, 20000)),
        (5, 20000, (10000, 30000, 50000, 25000, 25000), (7, 28000)),
        (3, 20000, (19000, 20000, 21000), (3, 20000)),
        (4, 15000, (30000, None, None, 10000), (4, 20000)),
    ],
)
def test_usage(current: int, target: int, values: tuple[int | None, ...], expected: Any) -> None:
    measured = metrics(*values)
    groups = group_pods(pods(len(values)), measured, "", STARTUP_GRACE, NOW)
    assert by_usage(current, target, measured, groups, TOLERANCES) == expected


def test_a_value_shared_by_all_pods() -> None:
    assert by_value(3, 20000, 15000, pods(3), TOLERANCES) == 4
    assert by_value(3, 16000, 15000, pods(3), TOLERANCES) == 3
    assert by_value(0, 20000, 15000, [], TOLERANCES) == 2
    with pytest.raises(MetricsFailure, match="no pods returned by selector"):
        by_value(3, 20000, 15000, [], TOLERANCES)


def test_an_average_value_per_pod() -> None:
    assert by_average_value(4, 17000, 5000, TOLERANCES) == (4, 4250)
    assert by_average_value(3, 1100000, 100000, TOLERANCES) == (11, 366667)
    assert by_average_value(0, 1000, 100, TOLERANCES) == (10, 1000)


# -- how fast ---------------------------------------------------------------------------------------------------------


def test_without_behavior_the_highest_recommendation_of_five_minutes_applies() -> None:
    history = History()
    history.begin("k", 8, 0)
    assert highest_recent(history, "k", 3, 300, 300) == 8
    history.recommend("k", 3, 300)
    assert highest_recent(history, "k", 2, 300, 301) == 3


@pytest.mark.parametrize(
    ("current", "wanted", "replicas", "reason"),
    [
        (3, 5, 5, "DesiredWithinRange"),
        (3, 1, 2, "TooFewReplicas"),
        (3, 20, 6, "ScaleUpLimit"),
        (1, 20, 4, "ScaleUpLimit"),
        (9, 20, 10, "TooManyReplicas"),
    ],
)
def test_limits_without_behavior(current: int, wanted: int, replicas: int, reason: str) -> None:
    assert limit(current, wanted, 2, 10)[:2] == (replicas, reason)


def rules(*policies: tuple[str, int, int], select: str = "Max", window: int = 0) -> Any:
    return {
        "selectPolicy": select,
        "stabilizationWindowSeconds": window,
        "policies": [{"type": kind, "value": value, "periodSeconds": period} for kind, value, period in policies],
    }


def test_stabilization_uses_the_lowest_and_highest_recent_recommendations() -> None:
    history = History()
    for at, replicas in ((0, 10), (50, 4), (90, 6)):
        history.recommend("k", replicas, at)
    up, down = rules(window=60), rules(window=120)
    assert stabilize(history, "k", 3, 8, up, down, 100)[:2] == (4, "ScaleUpStabilized")
    assert stabilize(history, "k", 12, 2, up, down, 100)[:2] == (10, "ScaleDownStabilized")
    assert stabilize(history, "k", 7, 2, up, down, 100).replicas == 7


@pytest.mark.parametrize(
    ("up", "replicas", "reason"),
    [
        (rules(("Pods", 4, 60)), 10, "ScaleUpLimit"),
        (rules(("Percent", 100, 60)), 12, "ScaleUpLimit"),
        (rules(("Pods", 4, 60), ("Percent", 100, 60)), 12, "ScaleUpLimit"),
        (rules(("Pods", 4, 60), ("Percent", 100, 60), select="Min"), 10, "ScaleUpLimit"),
        (rules(("Pods", 4, 60), select="Disabled"), 10, "ScaleUpLimit"),
        (rules(("Pods", 400, 60)), 50, "TooManyReplicas"),
    ],
)
def test_policies_count_from_the_start_of_their_period(up: Obj, replicas: int, reason: str) -> None:
    history = History()
    history.rescaled("k", 4, 50)
    history.rescaled("k", 100, 0)
    # Six when the minute began, four more since: ten now.
    found = limit_rate(history, "k", 10, 90, Bounds(1, 50, up, rules()), 100)
    assert found[:2] == (replicas, reason)


@pytest.mark.parametrize(
    ("down", "replicas", "reason"),
    [
        (rules(("Pods", 4, 60)), 16, "ScaleDownLimit"),
        (rules(("Percent", 50, 60)), 10, "ScaleDownLimit"),
        (rules(("Pods", 4, 60), ("Percent", 50, 60), select="Min"), 16, "ScaleDownLimit"),
        (rules(("Pods", 4, 60), select="Disabled"), 18, "ScaleDownLimit"),
        (rules(("Percent", 100, 60)), 2, "TooFewReplicas"),
    ],
)
def test_policies_for_scaling_down(down: Obj, replicas: int, reason: str) -> None:
    history = History()
    history.rescaled("k", -2, 50)
    assert limit_rate(history, "k", 18, 1, Bounds(2, 50, rules(), down), 100)[:2] == (replicas, reason)
