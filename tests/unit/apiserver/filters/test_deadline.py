"""The `timeout` of a request's address."""

from __future__ import annotations

import pytest
from front_door import FrontDoor

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (f"{MAPS}?timeout=invalid", 'time: invalid duration "invalid"'),
        (f"{MAPS}?timeout=10", 'time: missing unit in duration "10"'),
        (f"{MAPS}/x?timeout=1d", 'time: unknown unit "d" in duration "1d"'),
        ("/healthz?timeout=soon&timeout=1s", 'time: invalid duration "soon"'),
    ],
)
async def test_a_timeout_that_is_no_duration_is_refused(door: FrontDoor, path: str, why: str) -> None:
    reply = await door.get(path)
    assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
    assert reply.message == f"invalid timeout specified in the request URL - {why}"


async def test_nothing_is_written_then(door: FrontDoor) -> None:
    assert (await door.post(f"{MAPS}?timeout=x", {"metadata": {"name": "x"}})).status == 400
    assert (await door.get(f"{MAPS}/x")).status == 404


@pytest.mark.parametrize("timeout", ["", "0", "0s", "3m", "-1s", "1h2m3.5s"])
async def test_others_are_served(door: FrontDoor, timeout: str) -> None:
    assert (await door.get(f"{MAPS}?timeout={timeout}")).status == 200


async def test_who_watches_is_not_asked(door: FrontDoor) -> None:
    reply = await door.get(f"{MAPS}?watch=true&resourceVersion=x&timeout=invalid")
    assert "resourceVersion" in reply.message
    reply = await door.get("/api/v1/namespaces/default/pods/x/log?timeout=invalid")
    assert reply.status == 404
