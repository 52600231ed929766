"""Ordered keys."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.store.key_order import KeyOrder, prefix_end

keys = st.text(alphabet=st.sampled_from("ab/0é\ud7ff\ue000\uffff\U0001f600\U0010ffff"), max_size=4)


@given(keys)
def test_the_end_of_a_prefix_is_the_first_string_beyond_it(prefix: str) -> None:
    end = prefix_end(prefix)
    inside = [prefix, prefix + "\0", prefix + "\U0010ffff" * 3]
    if end is None:
        assert prefix.strip("\U0010ffff") == ""
    else:
        assert all(key < end for key in inside)
        assert not end.startswith(prefix) or not prefix


@given(keys)
def test_code_points_order_as_bytes(key: str) -> None:
    for other in ("a", "é", "\ue000", "\uffff", "\U0001f600"):
        assert (key < other) == (key.encode() < other.encode())


@given(st.sets(keys), keys, keys, st.integers(0, 5))
def test_small_slices(members: set[str], first: str, end: str, limit: int) -> None:
    expected = sorted(key for key in members if first <= key < end)
    assert KeyOrder(members).between(first, end, limit) == (expected[: limit or None], len(expected))
    assert [*KeyOrder(members).each(first, end)] == expected


@pytest.mark.parametrize("seed", range(3))
def test_many_insertions_and_deletions(seed: int) -> None:
    chance = random.Random(seed)
    order, members = KeyOrder(), set[str]()
    for phase in range(4):
        for _ in range(4_000):
            # The set alternately grows and shrinks, so that chunks are split, merged and emptied.
            if chance.random() < (0.9 if phase % 2 == 0 else 0.15) or not members:
                key = f"{chance.randrange(3)}/{chance.randrange(10_000):05}"
                if key not in members:
                    members.add(key)
                    order.add(key)
            else:
                key = chance.choice([*members]) if len(members) < 50 else next(iter(members))
                members.remove(key)
                order.remove(key)
        ordered = sorted(members)
        assert len(order) == len(ordered)
        assert order.between("", None) == (ordered, len(ordered))
        assert [*order.each("", None)] == ordered
        for _ in range(200):
            first, end = (f"{chance.randrange(4)}/{chance.randrange(10_000):05}" for _ in range(2))
            limit = chance.choice([0, 1, 7, 600, 5_000])
            expected = [key for key in ordered if first <= key < end]
            assert order.between(first, end, limit) == (expected[: limit or None], len(expected))
            assert [*order.each(first, end)] == expected
    for key in [*members]:
        order.remove(key)
    assert order.between("", None) == ([], 0)
