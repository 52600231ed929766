"""Dealing, queues and seats."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.apiserver.fairness.allocation import Claim, Demand, allocate
from setpoint.apiserver.fairness.dealing import deal, flow_hash
from setpoint.apiserver.fairness.dropped import Dropped
from setpoint.apiserver.fairness.levels import Level, lend
from setpoint.apiserver.fairness.queues import QueueFull, Queues
from setpoint.kinds.bootstrap.flowcontrol import priority_levels


@given(st.integers(0, 2**64 - 1), st.integers(1, 128), st.data())
def test_a_hand_has_no_card_twice(value: int, deck: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, min(deck, 8)))
    hand = deal(value, deck, size)
    assert len(set(hand)) == size
    assert all(0 <= card < deck for card in hand)


def test_all_hands_are_dealt_equally_often() -> None:
    hands = Counter(deal(value, 5, 2) for value in range(5 * 4 * 10))
    assert len(hands) == 20
    assert set(hands.values()) == {10}


def test_flows_are_told_apart() -> None:
    assert flow_hash("schema", "user") != flow_hash("schema", "other")
    assert flow_hash("ab", "c") != flow_hash("a", "bc")


def _queues(limit: int, queues: int = 16, length: int = 4, hand: int = 4) -> Queues:
    found = Queues()
    found.limit = limit
    found.configure(queues, length, hand)
    return found


async def test_who_sends_many_does_not_delay_who_sends_one() -> None:
    queues = _queues(limit=1, queues=64, length=50, hand=6)
    queues.in_use = 1
    noisy = [queues.wait(flow_hash("s", "noisy"), 1) for _ in range(200)]
    queues.in_use = 0
    assert queues.dispatch()
    queues.in_use = 1
    late = queues.wait(flow_hash("s", "quiet"), 1)
    for _ in range(1 + 6):  # those that the hand of the noisy one may put before it
        queues.in_use = 0
        assert queues.dispatch()
    assert late.turn.done()
    assert sum(each.turn.done() for each in noisy) <= 7


@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(1, 5))
async def test_everybody_is_served_alike(sizes: list[int], limit: int) -> None:
    """While they all have somebody waiting, no flow gets more than one turn ahead of another (one queue each)."""
    queues = _queues(limit=limit, queues=len(sizes), length=100, hand=1)
    waiting = {flow: [queues.wait(flow, 1) for _ in range(size)] for flow, size in enumerate(sizes)}
    served: Counter[int] = Counter()
    while queues.waiting:
        assert queues.dispatch()
        queues.in_use -= 1
        for flow, each in waiting.items():
            served[flow] = sum(one.turn.done() for one in each)
        busy = [served[flow] for flow, each in waiting.items() if served[flow] < len(each)]
        if busy:
            assert max(busy) - min(busy) <= 1
    assert served == Counter(dict(enumerate(sizes)))
    assert queues.seats_waiting == queues.in_use == 0


async def test_in_a_queue_the_first_is_first_and_whoever_left_is_passed_over() -> None:
    queues = _queues(limit=1, queues=1, hand=1)
    first, second, third = (queues.wait(7, 1) for _ in range(3))
    queues.give_up(first)
    second.turn.cancel()
    assert queues.dispatch()
    assert third.turn.done() and not first.turn.done()
    assert queues.waiting == queues.seats_waiting == 0
    assert not queues.dispatch()


async def test_a_queue_is_full() -> None:
    queues = _queues(limit=1, queues=1, length=2, hand=1)
    queues.in_use = 1
    for _ in range(2):
        queues.wait(7, 1)
    with pytest.raises(QueueFull):
        queues.wait(7, 1)
    with pytest.raises(QueueFull):
        _queues(limit=1, queues=0).wait(7, 1)


async def test_a_wide_request_waits_until_there_is_room_and_nobody_overtakes_it() -> None:
    queues = _queues(limit=4, queues=1, hand=1)
    queues.in_use = 2
    wide, narrow = queues.wait(7, 3), queues.wait(7, 1)
    assert not queues.dispatch()
    queues.in_use = 1
    assert queues.dispatch() and wide.turn.done() and not narrow.turn.done()
    assert not queues.dispatch()
    huge = _queues(limit=4)
    assert huge.fits(9)
    huge.in_use = 1
    assert not huge.fits(9)


async def test_who_asks_seldom_is_next_and_who_asks_often_is_not() -> None:
    queues = _queues(limit=10, queues=64, length=50, hand=6)
    quiet, noisy = flow_hash("s", "quiet"), flow_hash("s", "noisy")
    for _ in range(12):
        queues.wait(noisy, 1)
    assert queues.is_next(quiet, 1)
    assert not queues.is_next(noisy, 1)
    assert sum(queues.is_next(quiet, 1) for _ in range(20)) <= 5, "once in each queue, until others had their turn"
    while queues.dispatch():
        queues.in_use = 0
    assert queues.is_next(quiet, 1)


async def test_nobody_is_next_where_seats_are_what_there_is_not_enough_of() -> None:
    queues = _queues(limit=4)
    queues.in_use = 2
    wide = queues.wait(7, 3)
    assert not queues.is_next(8, 1)
    queues.in_use = 0
    assert queues.is_next(8, 1)
    assert queues.dispatch() and wide.turn.done()
    assert not _queues(limit=4, queues=0).is_next(8, 1)


_BOUNDS = st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 50)).map(sorted)


@given(st.lists(_BOUNDS, min_size=1, max_size=9), st.floats(0, 1))
def test_seats_are_shared_in_proportion_within_bounds(bounds: list[list[float]], part: float) -> None:
    claims = [Claim(wanted, least, most) for least, wanted, most in bounds]
    low, high = sum(each.least for each in claims), sum(each.most for each in claims)
    total = low + (high - low) * part
    given_ = allocate(total, claims)
    assert sum(given_) == pytest.approx(total, rel=1e-6, abs=1e-6)
    free = []
    for claim, seats in zip(claims, given_, strict=True):
        assert claim.least - 1e-9 <= seats <= claim.most + 1e-9
        if claim.least + 1e-6 < seats < claim.most - 1e-6:
            free.append(seats / max(claim.wanted, 0.001))
    if free:
        assert max(free) == pytest.approx(min(free), rel=1e-4)


def test_what_was_asked_for() -> None:
    demand = Demand(0.0)
    demand.changed(0.0, 4)
    demand.changed(5.0, 0)
    most, smoothed = demand.look(10.0)
    assert (most, smoothed) == (4, 4.0)  # two on the average, and two more or less
    most, smoothed = demand.look(20.0)
    assert most == 0
    assert smoothed == pytest.approx(4.0 * 0.977)


def _levels() -> dict[str, Level]:
    levels = {}
    for each in priority_levels():
        level = levels[each["metadata"]["name"]] = Level(each["metadata"]["name"], 0.0)
        level.configure(each["spec"])
    for level in levels.values():
        level.share(600, sum(each.shares for each in levels.values()))
    return levels


def test_the_default_levels_have_upstreams_seats() -> None:
    seats = {name: (level.nominal, level.least, level.widest) for name, level in _levels().items()}
    assert seats == {
        "exempt": (0, 0, 0), "catch-all": (13, 13, 0), "system": (74, 50, 12), "node-high": (98, 74, 15),
        "leader-election": (25, 25, 4), "workload-high": (98, 49, 15), "workload-low": (245, 25, 37),
        "global-default": (49, 25, 8),
    }  # fmt: skip


def test_seats_that_nobody_wants_are_lent() -> None:
    levels = _levels()
    levels["global-default"].demand.changed(0.0, 300)
    lend(levels.values(), 10.0)
    limits = {name: level.queues.limit for name, level in levels.items()}
    assert limits["global-default"] > 200
    assert all(level.queues.limit >= level.least for level in levels.values())
    assert sum(limits.values()) == pytest.approx(sum(level.nominal for level in levels.values()), abs=4)
    for _ in range(400):
        levels["global-default"].demand.changed(10.0, 0)
        levels["workload-low"].demand.changed(10.0, 300)
        lend(levels.values(), 20.0)
    assert levels["workload-low"].queues.limit > 200


def test_the_more_are_refused_the_later_they_come_again() -> None:
    dropped = Dropped()
    assert dropped.one_more(100) == 1
    told = [dropped.one_more(second) for second in range(101, 140) for _ in range(200)]
    assert told[-1] == 32
    assert dropped.one_more(1000) == 31
