"""Limits on the number of requests in flight."""

from __future__ import annotations

import pytest

from setpoint.apiserver.filters.request_limits import InFlight
from setpoint.meta.errors import TooManyRequests


def test_reads_and_writes_have_separate_limits_and_watches_none() -> None:
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


def test_zero_means_no_limit() -> None:
    limits = InFlight(reads=0, writes=0)
    for _ in range(1000):
        limits.enter("get")
