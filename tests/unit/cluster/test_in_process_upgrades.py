"""Upgraded connections of clients in the server's process: exec without a socket, in virtual time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from virtual_commands import run_command

from setpoint.client import Client
from setpoint.client.prefixed import PrefixedTransport
from setpoint.client.websocket import V5, open_channels
from setpoint.meta.errors import ApiError, NotFound
from setpoint.meta.objects import Obj
from setpoint.testing import VirtualCluster, virtual
from setpoint.wire.memory_connection import connected_pair

POD: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["sleep", "1000"]}]},
}
EXEC = "/api/v1/namespaces/default/pods/p/exec"


async def a_pod(cluster: VirtualCluster) -> None:
    await cluster.client.create(POD)

    async def running() -> bool:
        found = await cluster.client.get(("v1", "Pod"), "p", "default")
        return bool(found["status"].get("phase") == "Running")

    await cluster.until(running)


async def received(client: Client, path: str, query: str) -> bytes:
    channels = await open_channels(client.sender, path, query, [V5])
    found = b""
    while (message := await channels.receive()) is not None:
        found += message[1] if message[0] == 1 else b""
    channels.close()
    return found


@virtual(nodes=1)
async def test_exec_works_within_the_process(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    query = "command=echo&command=hello&stdout=true&container=c"
    assert await received(cluster.client, EXEC, query) == b"hello\n"


@virtual(nodes=1)
async def test_the_exec_command_works_within_the_process(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    result = await run_command(cluster, "exec p -- echo hello", Path("/"))
    assert (result.code, result.out, result.err) == (0, "hello\n", "")


@virtual(nodes=1)
async def test_a_refused_upgrade_is_an_api_error(cluster: VirtualCluster) -> None:
    with pytest.raises(NotFound):
        await received(cluster.client, EXEC, "command=echo&stdout=true")


@virtual(nodes=1)
async def test_a_prefix_applies_to_upgrades(cluster: VirtualCluster) -> None:
    await a_pod(cluster)
    revision = (await cluster.client.list(("v1", "Pod"))).resource_version
    sender = cluster.client.sender
    client = Client(PrefixedTransport(sender.transport, f"/at/{revision}"), sender.clock)
    with pytest.raises(ApiError) as refused:
        await received(client, EXEC, "command=echo&stdout=true")
    assert refused.value.code == 405


async def test_a_writer_waits_for_a_slow_reader() -> None:
    one, other = connected_pair()
    one.write(b"x" * 300_000)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(one.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        assert len(await other.read()) == 300_000


async def test_the_end_of_a_closed_connection_is_read_after_its_data() -> None:
    one, other = connected_pair()
    one.write(b"last")
    one.close()
    assert await other.read() == b"last"
    assert await other.read() == b""
    with pytest.raises(ConnectionResetError):
        await other.drained()
