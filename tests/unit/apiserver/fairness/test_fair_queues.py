"""Shuffle sharding, queues and seats."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.apiserver.fairness.levels import (
    DroppedRequestsTracker,
    Level,
    SeatClaim,
    SeatDemand,
    allocate,
    lend_seats,
)
from setpoint.apiserver.fairness.queues import QueueFull, Queues, flow_hash, shuffle_shard
from setpoint.kinds.bootstrap.initial_objects import priority_levels


@given(st.integers(0, 2**64 - 1), st.integers(1, 128), st.data())
def test_a_hand_has_distinct_queues(value: int, deck: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, min(deck, 8)))
    hand = shuffle_shard(value, deck, size)
    assert len(set(hand)) == size
    assert all(0 <= card < deck for card in hand)


def test_all_hands_are_equally_likely() -> None:
    hands = Counter(shuffle_shard(value, 5, 2) for value in range(5 * 4 * 10))
    assert len(hands) == 20
    assert set(hands.values()) == {10}


def test_flows_have_different_hashes() -> None:
    assert flow_hash("schema", "user") != flow_hash("schema", "other")
    assert flow_hash("ab", "c") != flow_hash("a", "bc")


def _queues(limit: int, queues: int = 16, length: int = 4, hand: int = 4) -> Queues:
    found = Queues()
    found.limit = limit
    found.configure(queues, length, hand)
    return found


async def test_a_queue_exists_from_its_first_request_on() -> None:
    queues = _queues(limit=1, queues=64, length=50, hand=6)
    assert queues.has_queues and len(queues.queues) == 64 and not queues._queues
    request = queues.enqueue(flow_hash("s", "user"), 1)
    assert [each for each in queues.queues if each.requests] == [request.queue] == [*queues._queues.values()]


async def test_a_noisy_flow_does_not_delay_a_quiet_one() -> None:
    queues = _queues(limit=1, queues=64, length=50, hand=6)
    queues.in_use = 1
    noisy = [queues.enqueue(flow_hash("s", "noisy"), 1) for _ in range(200)]
    queues.in_use = 0
    assert queues.dispatch()
    queues.in_use = 1
    late = queues.enqueue(flow_hash("s", "quiet"), 1)
    for _ in range(1 + 6):  # requests of the noisy flow's queues that may precede it
        queues.in_use = 0
        assert queues.dispatch()
    assert late.granted.done()
    assert sum(each.granted.done() for each in noisy) <= 7


@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.integers(1, 5))
async def test_flows_are_served_equally(sizes: list[int], limit: int) -> None:
    """While all flows have queued requests, none is ahead of another by more than one (one queue each)."""
    queues = _queues(limit=limit, queues=len(sizes), length=100, hand=1)
    waiting = {flow: [queues.enqueue(flow, 1) for _ in range(size)] for flow, size in enumerate(sizes)}
    served: Counter[int] = Counter()
    while queues.waiting:
        assert queues.dispatch()
        queues.in_use -= 1
        for flow, each in waiting.items():
            served[flow] = sum(one.granted.done() for one in each)
        busy = [served[flow] for flow, each in waiting.items() if served[flow] < len(each)]
        if busy:
            assert max(busy) - min(busy) <= 1
    assert served == Counter(dict(enumerate(sizes)))
    assert queues.seats_waiting == queues.in_use == 0


async def test_queues_are_fifo_and_skip_removed_requests() -> None:
    queues = _queues(limit=1, queues=1, hand=1)
    first, second, third = (queues.enqueue(7, 1) for _ in range(3))
    queues.remove(first)
    second.granted.cancel()
    assert queues.dispatch()
    assert third.granted.done() and not first.granted.done()
    assert queues.waiting == queues.seats_waiting == 0
    assert not queues.dispatch()


async def test_a_queue_is_full() -> None:
    queues = _queues(limit=1, queues=1, length=2, hand=1)
    queues.in_use = 1
    for _ in range(2):
        queues.enqueue(7, 1)
    with pytest.raises(QueueFull):
        queues.enqueue(7, 1)
    with pytest.raises(QueueFull):
        _queues(limit=1, queues=0).enqueue(7, 1)


async def test_a_wide_request_waits_and_is_not_overtaken() -> None:
    queues = _queues(limit=4, queues=1, hand=1)
    queues.in_use = 2
    wide, narrow = queues.enqueue(7, 3), queues.enqueue(7, 1)
    assert not queues.dispatch()
    queues.in_use = 1
    assert queues.dispatch() and wide.granted.done() and not narrow.granted.done()
    assert not queues.dispatch()
    huge = _queues(limit=4)
    assert huge.fits(9)
    huge.in_use = 1
    assert not huge.fits(9)


async def test_a_quiet_flow_bypasses_the_queue_and_a_noisy_one_does_not() -> None:
    queues = _queues(limit=10, queues=64, length=50, hand=6)
    quiet, noisy = flow_hash("s", "quiet"), flow_hash("s", "noisy")
    for _ in range(12):
        queues.enqueue(noisy, 1)
    assert queues.can_bypass(quiet, 1)
    assert not queues.can_bypass(noisy, 1)
    assert sum(queues.can_bypass(quiet, 1) for _ in range(20)) <= 5, "once in each queue, until others had their turn"
    while queues.dispatch():
        queues.in_use = 0
    assert queues.can_bypass(quiet, 1)


async def test_no_bypass_without_enough_seats() -> None:
    queues = _queues(limit=4)
    queues.in_use = 2
    wide = queues.enqueue(7, 3)
    assert not queues.can_bypass(8, 1)
    queues.in_use = 0
    assert queues.can_bypass(8, 1)
    assert queues.dispatch() and wide.granted.done()
    assert not _queues(limit=4, queues=0).can_bypass(8, 1)


_BOUNDS = st.tuples(st.floats(0, 50), st.floats(0, 50), st.floats(0, 50)).map(sorted)


@given(st.lists(_BOUNDS, min_size=1, max_size=9), st.floats(0, 1))
def test_seats_are_allocated_in_proportion_within_bounds(bounds: list[list[float]], part: float) -> None:
    claims = [SeatClaim(target, minimum, maximum) for minimum, target, maximum in bounds]
    low, high = sum(each.minimum for each in claims), sum(each.maximum for each in claims)
    total = low + (high - low) * part
    given_ = allocate(total, claims)
    assert sum(given_) == pytest.approx(total, rel=1e-6, abs=1e-6)
    free = []
    for claim, seats in zip(claims, given_, strict=True):
        assert claim.minimum - 1e-9 <= seats <= claim.maximum + 1e-9
        if claim.minimum + 1e-6 < seats < claim.maximum - 1e-6:
            free.append(seats / max(claim.target, 0.001))
    if free:
        assert max(free) == pytest.approx(min(free), rel=1e-4)


def test_seat_demand() -> None:
    demand = SeatDemand(0.0)
    demand.update(0.0, 4)
    demand.update(5.0, 0)
    maximum, smoothed = demand.collect(10.0)
    assert (maximum, smoothed) == (4, 4.0)  # two on the average, and two more or less
    maximum, smoothed = demand.collect(20.0)
    assert maximum == 0
    assert smoothed == pytest.approx(4.0 * 0.977)


def _levels() -> dict[str, Level]:
    levels = {}
    for each in priority_levels():
        level = levels[each["metadata"]["name"]] = Level(each["metadata"]["name"], 0.0)
        level.configure(each["spec"])
    for level in levels.values():
        level.set_limits(600, sum(each.shares for each in levels.values()))
    return levels


def test_the_default_levels_have_upstreams_seats() -> None:
    seats = {name: (level.nominal, level.lower_limit, level.max_seats_per_request) for name, level in _levels().items()}
    assert seats == {
        "exempt": (0, 0, 0),
        "catch-all": (13, 13, 0),
        "system": (74, 50, 12),
        "node-high": (98, 74, 15),
        "leader-election": (25, 25, 4),
        "workload-high": (98, 49, 15),
        "workload-low": (245, 25, 37),
        "global-default": (49, 25, 8),
    }


def test_unused_seats_are_lent() -> None:
    levels = _levels()
    levels["global-default"].demand.update(0.0, 300)
    lend_seats(levels.values(), 10.0)
    limits = {name: level.queues.limit for name, level in levels.items()}
    assert limits["global-default"] > 200
    assert all(level.queues.limit >= level.lower_limit for level in levels.values())
    assert sum(limits.values()) == pytest.approx(sum(level.nominal for level in levels.values()), abs=4)
    for _ in range(400):
        levels["global-default"].demand.update(10.0, 0)
        levels["workload-low"].demand.update(10.0, 300)
        lend_seats(levels.values(), 20.0)
    assert levels["workload-low"].queues.limit > 200


def test_retry_after_grows_with_rejections() -> None:
    dropped = DroppedRequestsTracker()
    assert dropped.record(100) == 1
    retry_after = [dropped.record(second) for second in range(101, 140) for _ in range(200)]
    assert retry_after[-1] == 32
    assert dropped.record(1000) == 31
