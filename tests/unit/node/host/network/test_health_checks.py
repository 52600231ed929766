"""The health check ports of Services answer as those of kube-proxy."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest

from setpoint.node.host.network.health_checks import HealthCheckServers
from setpoint.node.host.network.services import HealthCheck
from setpoint.system import SystemClock

HEALTHY = [True]


@pytest.fixture
async def servers() -> AsyncIterator[HealthCheckServers]:
    HEALTHY[:] = [True]
    made = HealthCheckServers(SystemClock(), lambda: HEALTHY[0], "127.0.0.1")
    yield made
    await made.close()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def get(port: int) -> tuple[str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return head, body


async def test_answers(servers: HealthCheckServers) -> None:
    port = free_port()
    await servers.update([HealthCheck("default", "web", port, 2)])
    head, body = await get(port)
    assert head.startswith("HTTP/1.1 200 ")
    assert "X-Load-Balancing-Endpoint-Weight: 2" in head and "Content-Type: application/json" in head
    assert body.startswith('{\n\t"service": {\n\t\t"namespace": "default",')
    assert json.loads(body) == {
        "service": {"namespace": "default", "name": "web"},
        "localEndpoints": 2,
        "serviceProxyHealthy": True,
    }
    HEALTHY[:] = [False]
    head, body = await get(port)
    assert head.startswith("HTTP/1.1 503 ") and '"serviceProxyHealthy": false' in body
    HEALTHY[:] = [True]
    await servers.update([HealthCheck("default", "web", port, 0)])
    assert (await get(port))[0].startswith("HTTP/1.1 503 ")
    await servers.update([])
    with pytest.raises(ConnectionRefusedError):
        await get(port)


async def test_a_port_in_use_is_tried_again(servers: HealthCheckServers) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        check = HealthCheck("default", "web", port, 1)
        await servers.update([check])
    await servers.update([check])
    assert (await get(port))[0].startswith("HTTP/1.1 200 ")
