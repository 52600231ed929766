"""A machine becomes a member of etcd, whatever an earlier attempt has left behind."""

from __future__ import annotations

import pytest

pytest.importorskip("google.protobuf", reason="an optional dependency")

from http_harness import LoopClock

from setpoint.cluster.etcd_joining import AddressInUse, become_member
from setpoint.store.etcd.membership import LearnerExists, Member, Membership
from setpoint.store.interface import StoreError, Unavailable
from setpoint.testing.virtual_time import run_virtual

OWN, OTHER = "https://10.0.0.4:2380", "https://10.0.0.3:2380"


class Etcd(Membership):
    """The membership of an etcd that behaves like the real one."""

    def __init__(self, *members: Member) -> None:
        self.all = [Member(1, "m1", ("https://10.0.0.1:2380",), ("https://10.0.0.1:2379",), False), *members]
        self.calls: list[str] = []
        self.errors: list[StoreError] = []
        """The errors of the next calls that add a member."""
        self.lost_answers = 0

    async def members(self) -> list[Member]:
        return [*self.all]

    async def add_learner(self, peer_url: str) -> list[Member]:
        self.calls.append("add")
        if self.errors:
            raise self.errors.pop(0)
        if any(one.is_learner for one in self.all):
            raise LearnerExists("too many learner members in cluster")
        self.all.append(Member(9, "", (peer_url,), (), True))
        if self.lost_answers:
            self.lost_answers -= 1
            raise Unavailable("etcd did not answer")
        return [*self.all]

    async def remove(self, member: int) -> None:
        self.calls.append(f"remove {member}")
        self.all = [one for one in self.all if one.id != member]


def join(etcd: Etcd, *, alive: bool = False) -> tuple[list[Member], float]:
    """Return the members after the attempt, and how long it took."""

    async def run() -> tuple[list[Member], float]:
        clock = LoopClock()
        started = clock.monotonic()

        async def answers(_: Member) -> bool:
            return alive

        members = await become_member(etcd, OWN, answers, clock, lambda _: None)
        return members, clock.monotonic() - started

    return run_virtual(run)


def is_learner(members: list[Member]) -> bool:
    return [(one.name, one.is_learner) for one in members if OWN in one.peer_urls] == [("", True)]


def test_a_new_machine_is_added_as_a_learner() -> None:
    etcd = Etcd()
    assert is_learner(join(etcd)[0])
    assert etcd.calls == ["add"]


def test_after_a_crash_the_learner_that_was_added_is_reused() -> None:
    etcd = Etcd(Member(2, "", (OWN,), (), True))
    assert is_learner(join(etcd)[0])
    assert etcd.calls == []


def test_a_lost_answer_does_not_add_a_second_member() -> None:
    etcd = Etcd()
    etcd.lost_answers = 1
    assert is_learner(join(etcd)[0])
    assert etcd.calls == ["add"]


@pytest.mark.parametrize("learner", [True, False])
def test_a_member_whose_data_is_lost_is_replaced(learner: bool) -> None:
    etcd = Etcd(Member(2, "m4", (OWN,), ("https://10.0.0.4:2379",), learner))
    members, _ = join(etcd)
    assert is_learner(members)
    assert etcd.calls == ["remove 2", "add"]


def test_a_running_member_with_the_same_address_is_not_removed() -> None:
    etcd = Etcd(Member(2, "m4", (OWN,), ("https://10.0.0.4:2379",), False))
    with pytest.raises(AddressInUse, match=r"https://10\.0\.0\.4:2380 belongs to the member m4, which runs on another"):
        join(etcd, alive=True)
    assert etcd.calls == []


def test_the_learner_of_another_machine_is_waited_for() -> None:
    etcd = Etcd(Member(3, "m3", (OTHER,), ("https://10.0.0.3:2379",), True))
    with pytest.raises(StoreError, match="another machine joins at the moment"):
        join(etcd, alive=True)
    assert all(call == "add" for call in etcd.calls)
    assert [one.id for one in etcd.all] == [1, 3]


def test_a_learner_that_was_left_behind_is_removed_after_a_while() -> None:
    etcd = Etcd(Member(3, "", (OTHER,), (), True))
    members, took = join(etcd)
    assert is_learner(members)
    assert [one.id for one in members] == [1, 9]
    assert 30 <= took <= 40


def test_etcd_may_refuse_changes_for_a_while() -> None:
    etcd = Etcd()
    etcd.errors = [Unavailable("unhealthy cluster")] * 5
    members, took = join(etcd)
    assert is_learner(members)
    assert took <= 10
    etcd = Etcd()
    etcd.errors = [Unavailable("unhealthy cluster")] * 1000
    with pytest.raises(StoreError, match="unhealthy cluster"):
        join(etcd)
