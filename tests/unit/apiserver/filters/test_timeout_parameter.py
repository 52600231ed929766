"""The `timeout` parameter of requests."""

from __future__ import annotations

import pytest
from server_harness import ServerHarness

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
async def test_an_invalid_timeout_is_refused(harness: ServerHarness, path: str, why: str) -> None:
    reply = await harness.get(path)
    assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
    assert reply.message == f"invalid timeout specified in the request URL - {why}"


async def test_a_refused_write_changes_nothing(harness: ServerHarness) -> None:
    assert (await harness.post(f"{MAPS}?timeout=x", {"metadata": {"name": "x"}})).status == 400
    assert (await harness.get(f"{MAPS}/x")).status == 404


@pytest.mark.parametrize("timeout", ["", "0", "0s", "3m", "-1s", "1h2m3.5s"])
async def test_valid_timeouts(harness: ServerHarness, timeout: str) -> None:
    assert (await harness.get(f"{MAPS}?timeout={timeout}")).status == 200


async def test_watches_ignore_the_parameter(harness: ServerHarness) -> None:
    reply = await harness.get(f"{MAPS}?watch=true&resourceVersion=x&timeout=invalid")
    assert "resourceVersion" in reply.message
    reply = await harness.get("/api/v1/namespaces/default/pods/x/log?timeout=invalid")
    assert reply.status == 404
