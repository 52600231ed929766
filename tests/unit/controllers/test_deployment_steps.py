"""The pure steps of a Deployment rollout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.controllers.deployment.replica_sets import (
    HASH_LABEL,
    for_new_set,
    limits,
    proportional,
    same_template,
    scale_down_old,
    set_name,
    size,
    size_of_new,
    split,
)
from setpoint.controllers.deployment.status import (
    rollout_status,
    seconds_to_deadline,
    status_of,
    with_pause_condition,
    with_progress_start,
)
from setpoint.controllers.history import template_hash
from setpoint.meta.objects import Obj

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def deployment(replicas: int = 3, surge: int | str = "25%", unavailable: int | str = "25%", **status: Any) -> Any:
    return {
        "metadata": {"name": "web", "generation": 1},
        "spec": {
            "replicas": replicas,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
            "progressDeadlineSeconds": 600,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}},
        },
        "status": status,
    }


def replica_set(uid: str, replicas: int, available: int | None = None, **status: Any) -> Any:
    available = replicas if available is None else available
    return {
        "metadata": {"uid": uid, "name": uid, "generation": 1},
        "spec": {"replicas": replicas},
        "status": {"replicas": replicas, "availableReplicas": available, "readyReplicas": available, **status},
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (4, "25%", "25%", (1, 1)),
        (1, "25%", "25%", (1, 0)),
        (2, "0%", "1%", (0, 1)),
        (3, 0, 5, (0, 3)),
        (0, 1, 1, (1, 0)),
    ],
)
def test_percentages_are_rounded_so_that_a_rollout_can_proceed(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    assert limits(deployment(replicas, surge, unavailable)) == expected


def test_the_new_set_grows_within_the_surge() -> None:
    web = deployment(10, 3, 2)
    old = replica_set("old", 10)
    assert size_of_new(web, [old], 0) == 3
    assert size_of_new(web, [old, replica_set("new", 3)], 3) == 3
    assert size_of_new(web, [replica_set("old", 5), replica_set("new", 3)], 3) == 8
    assert size_of_new(web, [], 0) == 10
    assert size_of_new(web, [replica_set("new", 12)], 12) == 10


def scaled(web: Any, new: Any, *old: Any) -> dict[str, int]:
    return {scaling.replica_set["metadata"]["uid"]: scaling.to for scaling in scale_down_old(web, new, old)}


def test_old_sets_are_scaled_down_as_far_as_availability_allows() -> None:
    web = deployment(10, 3, 2)
    assert scaled(web, replica_set("new", 3, 0), replica_set("old", 10)) == {"old": 8}
    assert scaled(web, replica_set("new", 5, 0), replica_set("old", 8)) == {}
    assert scaled(web, replica_set("new", 5, 3), replica_set("old", 8)) == {"old": 5}
    assert scaled(web, replica_set("new", 10), replica_set("old", 3)) == {"old": 0}


def test_unavailable_pods_are_scaled_down_first() -> None:
    web = deployment(10, 3, 2)
    assert scaled(web, replica_set("new", 0), replica_set("a", 8), replica_set("b", 5, 0)) == {"b": 0}


@given(
    replicas=st.integers(0, 20),
    surge=st.integers(0, 5),
    unavailable=st.integers(0, 5),
    old=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=3),
    new=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_no_step_violates_surge_and_unavailability(
    replicas: int, surge: int, unavailable: int, old: list[tuple[int, int]], new: tuple[int, int]
) -> None:
    web = deployment(replicas, surge, unavailable)
    new_set = replica_set("new", new[0], min(new))
    sets = [replica_set(f"old{number}", has, min(has, up)) for number, (has, up) in enumerate(old)]
    available = sum(found["status"]["availableReplicas"] for found in [new_set, *sets])
    room, out = limits(web)
    minimum = min(replicas - out, available)
    for found, to in scale_down_old(web, new_set, sets):
        up = found["status"]["availableReplicas"]
        # The Pods that are not available are the first to go.
        available -= max(0, up - to)
        assert 0 <= to < size(found)
    assert available >= minimum
    total = new[0] + sum(size(found) for found in sets)
    grown = size_of_new(web, [new_set, *sets], new[0])
    if grown > new[0]:
        assert total - new[0] + grown <= replicas + room
        assert grown <= replicas


def test_the_template_hash_fits_into_names() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1, "y": 2}}
    again = {"spec": {"y": 2, "x": 1}, "metadata": {"labels": {"a": "b"}}}
    assert template_hash(template, None) == template_hash(again, None)
    assert template_hash(template, None) != template_hash(template, 1) != template_hash(template, 2)
    assert template_hash(template, None).strip("bcdfghjklmnpqrstvwxz2456789") == ""
    assert len(set_name("d" * 253, "abc")) == 253


def test_the_set_of_a_template_is_found_whatever_its_hash() -> None:
    web = deployment()
    template = web["spec"]["template"]
    labelled = {**template, "metadata": {"labels": {"app": "web", HASH_LABEL: "x"}, "creationTimestamp": None}}
    assert same_template(template, labelled)
    other = {**template, "spec": {"containers": [{"name": "d"}]}}
    sets: list[Any] = [
        {"metadata": {"name": name, "creationTimestamp": stamp}, "spec": {"template": found}}
        for name, stamp, found in (("c", "3", labelled), ("b", "2", labelled), ("a", "1", other))
    ]
    new, old = split(web, sets)
    assert new is sets[1]
    assert [found["metadata"]["name"] for found in old] == ["a", "c"]


def test_a_revision_only_increases_and_its_history_is_recorded() -> None:
    prefix = "deployment.kubernetes.io/"
    web = deployment()
    web["metadata"]["annotations"] = {"team": "blue", f"{prefix}revision": "9"}
    first = for_new_set(web, {}, 1)
    assert first == {"team": "blue", f"{prefix}revision": "1"}
    back = for_new_set(web, first, 3)
    assert back[f"{prefix}revision"] == "3"
    assert back[f"{prefix}revision-history"] == "1"
    assert for_new_set(web, back, 2) == back


def reasons(status: Obj) -> dict[str, tuple[str, str]]:
    return {found["type"]: (found["status"], found["reason"]) for found in status["conditions"]}


def test_the_status_follows_a_rollout() -> None:
    web = deployment(3)
    new = replica_set("new", 3, 0)
    new["status"]["replicas"] = 0
    status = rollout_status(web, new, [], NOW, created=True)
    assert reasons(status) == {
        "Available": ("False", "MinimumReplicasUnavailable"),
        "Progressing": ("True", "NewReplicaSetCreated"),
    }
    assert status["unavailableReplicas"] == 3
    assert "readyReplicas" not in status

    web["status"] = status
    status = rollout_status(web, replica_set("new", 3, 1), [], NOW + timedelta(seconds=5))
    assert reasons(status)["Progressing"] == ("True", "ReplicaSetUpdated")
    web["status"] = status
    status = rollout_status(web, replica_set("new", 3), [], NOW + timedelta(seconds=9))
    assert reasons(status) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert status["observedGeneration"] == 1
    by_type = {found["type"]: found for found in status["conditions"]}
    assert by_type["Progressing"]["lastTransitionTime"] == "2030-01-01T00:00:00Z"
    assert by_type["Available"]["lastTransitionTime"] == "2030-01-01T00:00:09Z"

    web["status"] = status
    assert rollout_status(web, replica_set("new", 3), [], NOW + timedelta(hours=1)) == status
    lost = rollout_status(web, replica_set("new", 3, 2), [], NOW + timedelta(hours=2))
    assert reasons(lost)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_a_rollout_without_progress_times_out() -> None:
    web = deployment(3)
    stuck = replica_set("new", 3, 0)
    web["status"] = rollout_status(web, stuck, [], NOW, created=True)
    web["status"] = rollout_status(web, stuck, [], NOW)
    assert seconds_to_deadline(web, web["status"], NOW + timedelta(seconds=100)) == 501
    late = rollout_status(web, stuck, [], NOW + timedelta(seconds=601))
    assert reasons(late)["Progressing"] == ("False", "ProgressDeadlineExceeded")
    assert seconds_to_deadline(web, late, NOW) is None


def test_a_failure_of_a_set_is_reported() -> None:
    web = deployment(3)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    failing = replica_set("new", 3, 0, conditions=[failure])
    web["status"] = rollout_status(web, failing, [], NOW)
    assert reasons(web["status"])["ReplicaFailure"] == ("True", "FailedCreate")
    assert "ReplicaFailure" not in reasons(rollout_status(web, replica_set("new", 3), [], NOW))


def test_a_pause_is_reported_and_does_not_count_towards_the_deadline() -> None:
    web = deployment(3)
    web["spec"]["paused"] = True
    paused: Any = with_pause_condition(web, NOW)
    assert reasons(paused["status"])["Progressing"] == ("Unknown", "DeploymentPaused")
    assert with_pause_condition(paused, NOW + timedelta(hours=1)) is paused
    web["spec"]["paused"] = False  # also in `paused`, which shares the spec
    resumed: Any = with_pause_condition(paused, NOW + timedelta(hours=2))
    assert reasons(resumed["status"])["Progressing"] == ("Unknown", "DeploymentResumed")
    stuck = replica_set("new", 3, 0, terminatingReplicas=0)
    after = rollout_status(resumed, stuck, [], NOW + timedelta(hours=2, seconds=590))
    assert reasons(after)["Progressing"] == ("True", "ReplicaSetUpdated")
    late: Any = {**web, "status": {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}}
    assert with_pause_condition(late, NOW) is late


def test_the_progress_deadline_starts_when_the_new_set_is_found() -> None:
    web = deployment(3)
    found: Any = with_progress_start(web, replica_set("new", 3), NOW)
    assert reasons(found["status"])["Progressing"] == ("True", "FoundNewReplicaSet")
    assert with_progress_start(found, replica_set("new", 3), NOW + timedelta(hours=1)) is found
    web["spec"]["progressDeadlineSeconds"] = 2**31 - 1
    assert with_progress_start(web, replica_set("new", 3), NOW) is web


def test_scaling_does_not_count_as_progress() -> None:
    web = deployment(3)
    assert set(reasons(status_of(web, replica_set("new", 3), [], NOW))) == {"Available"}


@pytest.mark.parametrize(
    ("replicas", "surge", "most_before", "old", "expected"),
    [
        # The sizes of the sets, the oldest first, and what becomes of them.
        (30, 3, 13, (8, 5), (20, 13)),
        (5, 3, 13, (8, 5), (5, 3)),
        (12, 0, 10, (5, 5), (6, 6)),
        (0, 3, 13, (8, 5), (0, 0)),
        (20, 0, 10, (10,), (20,)),
        (12, 0, 10, (4, 3, 3), (5, 3, 4)),
    ],
)
def test_a_new_size_is_distributed_proportionally(
    replicas: int, surge: int, most_before: int, old: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    web = deployment(replicas, surge, 0)
    sets = [replica_set(f"s{age}", has) for age, has in enumerate(old)]
    for age, found in enumerate(sets):
        found["metadata"]["creationTimestamp"] = f"2030-01-0{age + 1}T00:00:00Z"
    scaled_to = {
        to.replica_set["metadata"]["name"]: to.to
        for to in proportional(web, sets, {found["metadata"]["name"]: most_before for found in sets})
    }
    assert tuple(scaled_to[f"s{age}"] for age in range(len(old))) == expected


@given(
    replicas=st.integers(0, 40),
    surge=st.integers(0, 5),
    most_before=st.integers(0, 45),
    has=st.lists(st.integers(1, 15), min_size=2, max_size=5),
)
def test_proportional_sizes_add_up(replicas: int, surge: int, most_before: int, has: list[int]) -> None:
    web = deployment(replicas, surge, 1)
    sets = [replica_set(f"s{number}", size) for number, size in enumerate(has)]
    before = {found["metadata"]["name"]: most_before for found in sets}
    scalings = proportional(web, sets, before)
    allowed = replicas + limits(web)[0] if replicas else 0
    assert sum(to for _, to in scalings) == allowed or any(to == 0 for _, to in scalings)
    assert sum(to for _, to in scalings) >= allowed
    assert all(to >= 0 for _, to in scalings)
