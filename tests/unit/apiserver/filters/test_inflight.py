"""Not too many at once."""

from __future__ import annotations

import pytest

from setpoint.apiserver.filters.inflight import InFlight
from setpoint.meta.errors import TooManyRequests


def test_reads_and_writes_are_bounded_apart_and_watches_not_at_all() -> None:
    limits = InFlight(reads=2, writes=1)
    first, second = limits.enter("get"), limits.enter("list")
    with pytest.raises(TooManyRequests):
        limits.enter("get")
    writing = limits.enter("create")
    with pytest.raises(TooManyRequests):
        limits.enter("patch")
    assert limits.enter("watch") is None
    for counted in (first, second, writing):
        limits.leave(counted)
    assert limits.now == {True: 0, False: 0}


def test_zero_means_any_number() -> None:
    limits = InFlight(reads=0, writes=0)
    for _ in range(1000):
        limits.enter("get")
