"""The steps of a rollout: pure functions over the objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.controllers.deployment.revisions import for_new_set
from setpoint.controllers.deployment.sizes import limits, scale_down_old, size, size_of_new
from setpoint.controllers.deployment.status import seconds_to_deadline, status_of
from setpoint.controllers.deployment.template import HASH_LABEL, same_template, set_name, split
from setpoint.controllers.hashing import template_hash

Obj = dict[str, Any]
NOW = datetime(2030, 1, 1, tzinfo=UTC)


def deployment(replicas: int = 3, surge: int | str = "25%", unavailable: int | str = "25%", **status: Any) -> Obj:
    return {
        "metadata": {"name": "web", "generation": 1},
        "spec": {
            "replicas": replicas,
            "strategy": {
                "type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
            },
            "progressDeadlineSeconds": 600,
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}},
        },
        "status": status,
    }  # fmt: skip


def replica_set(uid: str, replicas: int, available: int | None = None, **status: Any) -> Obj:
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
def test_percentages_round_so_that_something_can_move(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    assert limits(deployment(replicas, surge, unavailable)) == expected


def test_the_new_set_grows_into_the_surge() -> None:
    web = deployment(10, 3, 2)
    old = replica_set("old", 10)
    assert size_of_new(web, [old], 0) == 3
    assert size_of_new(web, [old, replica_set("new", 3)], 3) == 3
    assert size_of_new(web, [replica_set("old", 5), replica_set("new", 3)], 3) == 8
    assert size_of_new(web, [], 0) == 10
    assert size_of_new(web, [replica_set("new", 12)], 12) == 10


def scaled(web: Obj, new: Obj, *old: Obj) -> dict[str, int]:
    return {scaling.replica_set["metadata"]["uid"]: scaling.to for scaling in scale_down_old(web, new, old)}


def test_old_sets_shrink_as_far_as_availability_allows() -> None:
    web = deployment(10, 3, 2)
    assert scaled(web, replica_set("new", 3, 0), replica_set("old", 10)) == {"old": 8}
    assert scaled(web, replica_set("new", 5, 0), replica_set("old", 8)) == {}
    assert scaled(web, replica_set("new", 5, 3), replica_set("old", 8)) == {"old": 5}
    assert scaled(web, replica_set("new", 10), replica_set("old", 3)) == {"old": 0}


def test_what_is_broken_goes_first() -> None:
    web = deployment(10, 3, 2)
    assert scaled(web, replica_set("new", 0), replica_set("a", 8), replica_set("b", 5, 0)) == {"b": 0}


@given(
    replicas=st.integers(0, 20), surge=st.integers(0, 5), unavailable=st.integers(0, 5),
    old=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=3),
    new=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)  # fmt: skip
def test_no_step_breaks_the_promises(
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


def test_a_hash_is_of_the_template_and_fits_into_names() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1, "y": 2}}
    again = {"spec": {"y": 2, "x": 1}, "metadata": {"labels": {"a": "b"}}}
    assert template_hash(template, None) == template_hash(again, None)
    assert template_hash(template, None) != template_hash(template, 1) != template_hash(template, 2)
    assert template_hash(template, None).strip("bcdfghjklmnpqrstvwxz2456789") == ""
    assert len(set_name("d" * 253, "abc")) == 253


def test_the_set_of_the_template_is_found_whatever_its_hash() -> None:
    web = deployment()
    template = web["spec"]["template"]
    labelled = {**template, "metadata": {"labels": {"app": "web", HASH_LABEL: "x"}, "creationTimestamp": None}}
    assert same_template(template, labelled)
    other = {**template, "spec": {"containers": [{"name": "d"}]}}
    sets = [
        {"metadata": {"name": name, "creationTimestamp": stamp}, "spec": {"template": found}}
        for name, stamp, found in (("c", "3", labelled), ("b", "2", labelled), ("a", "1", other))
    ]
    new, old = split(web, sets)
    assert new is sets[1]
    assert [found["metadata"]["name"] for found in old] == ["a", "c"]


def test_a_revision_only_grows_and_what_it_was_is_remembered() -> None:
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
    status = status_of(web, new, [], NOW, created=True)
    assert reasons(status) == {
        "Available": ("False", "MinimumReplicasUnavailable"),
        "Progressing": ("True", "NewReplicaSetCreated"),
    }
    assert status["unavailableReplicas"] == 3
    assert "readyReplicas" not in status

    web["status"] = status
    status = status_of(web, replica_set("new", 3, 1), [], NOW + timedelta(seconds=5))
    assert reasons(status)["Progressing"] == ("True", "ReplicaSetUpdated")
    web["status"] = status
    status = status_of(web, replica_set("new", 3), [], NOW + timedelta(seconds=9))
    assert reasons(status) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert status["observedGeneration"] == 1
    by_type = {found["type"]: found for found in status["conditions"]}
    assert by_type["Progressing"]["lastTransitionTime"] == "2030-01-01T00:00:00Z"
    assert by_type["Available"]["lastTransitionTime"] == "2030-01-01T00:00:09Z"

    web["status"] = status
    assert status_of(web, replica_set("new", 3), [], NOW + timedelta(hours=1)) == status
    lost = status_of(web, replica_set("new", 3, 2), [], NOW + timedelta(hours=2))
    assert reasons(lost)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_a_rollout_without_progress_times_out() -> None:
    web = deployment(3)
    stuck = replica_set("new", 3, 0)
    web["status"] = status_of(web, stuck, [], NOW, created=True)
    web["status"] = status_of(web, stuck, [], NOW)
    assert seconds_to_deadline(web, web["status"], NOW + timedelta(seconds=100)) == 501
    late = status_of(web, stuck, [], NOW + timedelta(seconds=601))
    assert reasons(late)["Progressing"] == ("False", "ProgressDeadlineExceeded")
    assert seconds_to_deadline(web, late, NOW) is None


def test_a_failure_of_a_set_is_shown() -> None:
    web = deployment(3)
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    failing = replica_set("new", 3, 0, conditions=[failure])
    web["status"] = status_of(web, failing, [], NOW)
    assert reasons(web["status"])["ReplicaFailure"] == ("True", "FailedCreate")
    assert "ReplicaFailure" not in reasons(status_of(web, replica_set("new", 3), [], NOW))
