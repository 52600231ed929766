"""Not too many at once."""

from __future__ import annotations

import pytest
from front_door import FrontDoor

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


async def test_the_answer_says_when_to_come_again(door: FrontDoor) -> None:
    door.api.in_flight.now[True] = door.api.in_flight.limits[True]
    try:
        reply = await door.get("/api/v1/namespaces/default")
    finally:
        door.api.in_flight.now[True] = 0
    assert reply.status == 429
    assert reply.json["reason"] == "TooManyRequests"
    assert ("Retry-After", "1") in reply.headers
    assert (await door.get("/api/v1/namespaces/default")).status == 200
    assert door.api.in_flight.now[True] == 0


async def test_leases_are_bounded_apart(door: FrontDoor) -> None:
    """Who cannot renew one because others are busy would be taken for dead."""
    lease = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "held"}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    door.api.in_flight.now[False] = door.api.in_flight.limits[False]
    try:
        assert (await door.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "x"}})).status == 429
        assert (await door.post(leases, lease)).status == 201
    finally:
        door.api.in_flight.now[False] = 0
    assert door.api.leases_in_flight.now[False] == 0
