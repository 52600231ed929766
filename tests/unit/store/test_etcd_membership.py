"""Which changes of etcd's membership are safe."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="an optional dependency")

from setpoint.store.etcd.membership import Member, Next, initial_cluster, next_step, removal_problem


def member(number: int, name: str | None = None, *, learner: bool = False) -> Member:
    name = f"m{number}" if name is None else name
    urls = (f"https://10.0.0.{number}:2379",) if name else ()
    return Member(number, name, (f"https://10.0.0.{number}:2380",), urls, learner)


THREE = [member(1), member(2), member(3)]
OWN = "https://10.0.0.4:2380"


def test_a_new_machine_is_added() -> None:
    assert next_step(THREE, OWN) == (Next.ADD, 0)


def test_a_learner_that_has_never_run_is_reused() -> None:
    assert next_step([*THREE, member(4, "", learner=True)], OWN) == (Next.START, 4)


@pytest.mark.parametrize("learner", [True, False])
def test_a_member_that_has_lost_its_data_does_not_run_again_under_its_id(learner: bool) -> None:
    assert next_step([*THREE, member(4, learner=learner)], OWN) == (Next.REPLACE, 4)


def test_the_initial_cluster_names_the_new_member_itself() -> None:
    members = [member(1), member(4, "", learner=True)]
    assert initial_cluster(members, "new", OWN) == "m1=https://10.0.0.1:2380,new=https://10.0.0.4:2380"


@pytest.mark.parametrize(
    ("members", "removed", "healthy", "problem"),
    [
        (THREE, 3, {1, 2, 3}, ""),
        (THREE, 3, {1, 2}, ""),  # it is dead, and the others live
        (THREE, 3, {1, 3}, "the remaining members need 2 of 2 for a quorum, and m2 cannot be reached"),
        (THREE, 1, {1}, "the remaining members need 2 of 2 for a quorum, and m2, m3 cannot be reached"),
        ([member(1), member(2)], 2, {1, 2}, ""),
        ([member(1), member(2)], 2, {2}, "the remaining members need 1 of 1 for a quorum, and m1 cannot be reached"),
        ([member(1)], 1, {1}, "it is the only member"),
        ([*THREE, member(4, "", learner=True)], 4, {1}, ""),  # a learner has no vote
        ([member(1), member(2, learner=True)], 1, {1, 2}, "it is the only member"),  # that has a vote
    ],
)
def test_no_removal_costs_the_others_their_quorum(
    members: list[Member], removed: int, healthy: set[int], problem: str
) -> None:
    target = next(one for one in members if one.id == removed)
    assert removal_problem(members, target, healthy) == problem
