"""Malicious input at the HTTP level, and secrets that must not be logged."""

from __future__ import annotations

import asyncio
import logging

import orjson
import pytest
from effort import tries
from raw_http_client import Wire, head
from server_harness import ADMIN_TOKEN, ServerHarness, peak_memory, settle

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
LIMIT = 3 * 1024 * 1024


@pytest.mark.parametrize("size", [LIMIT + 1, 2 * LIMIT])
async def test_a_body_over_the_limit(wire: Wire, size: int) -> None:
    before = wire.harness.store.revision
    padding = b" " * (size - 30)
    reply = await wire.exchange("POST", CONFIGMAPS, b'{"metadata":{"name":"c"}}' + padding + b" " * 5)
    assert (reply.status, reply.json["kind"], reply.json["code"]) == (413, "Status", 413)
    assert wire.harness.store.revision == before


async def test_a_large_body_within_the_limit_is_read(wire: Wire) -> None:
    body = orjson.dumps({"metadata": {"name": "c"}, "data": {"a": "x" * (2 * 2**20)}})
    reply = await wire.exchange("POST", CONFIGMAPS, body)
    assert reply.status == 422  # too large for a ConfigMap, not for the wire


async def test_incomplete_and_endless_bodies(wire: Wire) -> None:
    before = wire.harness.store.revision
    line = await wire.connect()
    line.send(head("POST", CONFIGMAPS, 1000) + b'{"metadata":{"name":"cut"}}')
    await asyncio.sleep(0.02)
    line.writer.close()
    slow = await wire.connect()
    slow.send(head("POST", CONFIGMAPS, 1000) + b'{"metadata":')
    await asyncio.sleep(0.02)
    await wire.harness.clock.advance(120)
    reply = await slow.reply()
    assert (reply.status, reply.json["kind"]) == (408, "Status")
    assert wire.harness.store.revision == before


async def test_a_slow_head_is_disconnected(wire: Wire) -> None:
    line = await wire.connect()
    line.send(b"GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    await asyncio.sleep(0.02)
    for _ in range(5):
        line.send(b"a")
        await wire.harness.clock.advance(4)
        await asyncio.sleep(0.01)
    assert (await line.reply()).status == 408


@pytest.mark.parametrize(
    "headers",
    [["X-A: b"] * 2000, ["X-A: " + "b" * 2**21], [f"X-{i}: b" for i in range(2000)], ["X" * 2**21 + ": b"]],
    ids=["same", "long", "many", "name"],
)
async def test_too_many_headers(wire: Wire, headers: list[str]) -> None:
    line = await wire.connect()
    line.send(head("GET", "/version", 0, headers))
    assert (await line.reply()).status in (400, 431)


async def test_bytes_that_are_not_http(wire: Wire) -> None:
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ):
        line = await wire.connect()
        line.send(data)
        line.writer.write_eof()
        async with asyncio.timeout(10):
            answer = await line.reader.read()
        assert answer == b"" or answer[9:12] in (b"400", b"405", b"501", b"505"), (data, answer[:100])


async def test_paths_over_the_wire(wire: Wire) -> None:
    for target in (
        f"{CONFIGMAPS}/../secrets",
        "/%2e%2e/%2e%2e/etc/passwd",
        f"{CONFIGMAPS}/\udcc3\udca9",
        "/api/v1/secrets%00",
    ):
        reply = await wire.exchange("GET", target)
        assert reply.status in (400, 404), (target, reply.status)


async def test_changing_user_agents_do_not_grow_memory(harness: ServerHarness) -> None:
    """CVE-2020-8552: neither series nor memory grow with what clients call themselves."""
    request = harness._request("GET", "/version", None, "", None, ADMIN_TOKEN)
    for number in range(2000):
        request.headers["user-agent"] = f"agent-{number}/{number * 7919}"
        await harness.api.handle(request)
    series, memory = len(harness.api.resources.metrics.text()), peak_memory()
    more = tries(18_000, 98_000)
    for number in range(2000, 2000 + more):
        request.headers["user-agent"] = f"agent-{number}/{number * 7919}"
        await harness.api.handle(request)
    assert abs(len(harness.api.resources.metrics.text()) - series) < 500
    assert peak_memory() - memory < 100 * more


async def test_unknown_resources_and_methods_create_no_series(harness: ServerHarness) -> None:
    for number in range(300):
        await harness.get(f"/api/v1/namespaces/default/zap{number}/x/sub{number}")
        await harness.get(f"/apis/group{number}/v{number}/zap")
        await harness.get(f"{CONFIGMAPS}/c/sub{number}")
        await harness.request(f"METHOD{number}", "/version")
    assert harness.api.resources.metrics.text().count(b"apiserver_request_total{") < 40


async def test_tokens_are_never_logged(wire: Wire, quiet_log: pytest.LogCaptureFixture) -> None:
    """CVE-2019-11250, CVE-2020-8565: at no level, whatever goes wrong."""
    logging.getLogger("setpoint").setLevel(1)
    secrets = (ADMIN_TOKEN, "stolen-token", "hush-hush")
    harness = wire.harness
    await wire.exchange("GET", "/version")
    await wire.exchange("GET", f"/api/v1/secrets?token={secrets[1]}")
    await wire.exchange("POST", CONFIGMAPS, b'{"metadata":')
    body = orjson.dumps({"metadata": {"name": "s"}, "stringData": {"k": secrets[2]}})
    assert (await wire.exchange("POST", "/api/v1/namespaces/default/secrets", body)).status == 201
    await harness.get("/version", headers={"authorization": f"Bearer {secrets[1]}"})
    await harness.get("/version", headers={"authorization": f"Basic {secrets[1]}"})
    await harness.get("/version", headers={"impersonate-user": secrets[1]})
    await settle()
    text = "\n".join(record.getMessage() + str(record.args) for record in quiet_log.records)
    assert not any(secret in text for secret in secrets)
    assert not any(secret.encode() in harness.api.resources.metrics.text() for secret in secrets)
