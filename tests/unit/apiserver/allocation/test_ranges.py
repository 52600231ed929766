from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_harness import private_ids

from setpoint.apiserver.allocation.cluster_ips import Bands, address_range, port_bands


@pytest.mark.parametrize(
    ("cidr", "first", "last", "static"),
    [
        ("10.0.0.0/16", "10.0.0.1", "10.0.255.254", 256),
        ("10.0.0.0/24", "10.0.0.1", "10.0.0.254", 16),
        ("10.0.0.0/28", "10.0.0.1", "10.0.0.14", 0),
        ("10.0.0.0/20", "10.0.0.1", "10.0.15.254", 256),
        ("10.0.0.0/21", "10.0.0.1", "10.0.7.254", 128),
        ("fd00::/108", "fd00::1", "fd00::f:ffff", 256),
        ("fd00::/64", "fd00::1", "fd00::ffff:ffff:ffff:ffff", 256),
    ],
)
def test_bands_of_networks(cidr: str, first: str, last: str, static: int) -> None:
    known = address_range(cidr)
    assert known is not None
    assert (known.address(known.bands.first), known.address(known.bands.last)) == (first, last)
    assert known.bands.static == static


def test_a_network_that_is_too_large_is_not_used() -> None:
    assert address_range("fd00::/48") is None


@pytest.mark.parametrize(
    ("low", "high", "static"), [(30000, 32767, 86), (30000, 30015, 0), (30000, 30100, 16), (1, 65535, 128)]
)
def test_bands_of_ports(low: int, high: int, static: int) -> None:
    assert port_bands(low, high) == Bands(low, high, static)


@given(st.integers(1, 60), st.integers(0, 59), st.sets(st.integers(1, 60)))
def test_a_free_number_is_found_if_there_is_one(last: int, static: int, used: set[int]) -> None:
    bands = Bands(1, last, min(static, last - 1))
    chosen = bands.choose(private_ids(), used.__contains__, lambda: used)
    free = set(range(1, last + 1)) - used
    if not free:
        assert chosen is None
        return
    assert chosen in free
    upper = {number for number in free if number > bands.static}
    if upper:
        assert chosen in upper


def test_a_huge_range_is_not_scanned() -> None:
    used = set(range(1, 200))
    assert Bands(1, 2**64, 0).choose(private_ids(), lambda number: True, lambda: used) not in used
