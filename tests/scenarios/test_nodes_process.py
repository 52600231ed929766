"""Nodes in a process of their own: what the server asks them goes over the wire."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from server_process import server_process

from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.connect import connect
from setpoint.system import SystemClock, outward_address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not outward_address(), reason="this machine has no address but its own"),
]


@contextmanager
def nodes(kubeconfig: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "setpoint", "nodes", "--kubeconfig", str(kubeconfig), "--nodes", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "2 nodes are registered" in process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait(15)


async def read(client: Client, path: str, query: str = "") -> tuple[int, str]:
    reply = await client.sender.transport.request("GET", path, query, [], b"")
    return reply.status, reply.body.decode()


async def story(kubeconfig: Path) -> None:
    client = connect(find_access(str(kubeconfig)), SystemClock(), user_agent="tests")
    script = "echo one; echo two; sleep 1000"
    container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
    meta = {"name": "p", "namespace": "default"}
    try:
        await client.create(
            {
                "apiVersion": "v1", "kind": "Pod", "metadata": meta,
                "spec": {
                    "containers": [container], "nodeName": "node-2", "automountServiceAccountToken": False,
                    "tolerations": [{"operator": "Exists"}],
                },
            }
        )  # fmt: skip
        async with asyncio.timeout(30), client.watch(("v1", "Pod"), "default", resource_version="0") as watch:
            async for _, pod in watch:
                if (pod.get("status") or {}).get("phase") == "Running":
                    break
        log = "/api/v1/namespaces/default/pods/p/log"
        assert await read(client, log) == (200, "one\ntwo\n")
        assert await read(client, log, "tailLines=1") == (200, "two\n")
        status, text = await read(client, log, "previous=true")
        assert status == 400 and 'previous terminated container \\"c\\" in pod \\"p\\" not found' in text
        assert await read(client, "/api/v1/nodes/node-2/proxy/healthz") == (200, "ok")
        status, text = await read(client, "/api/v1/nodes/node-2/proxy/pods")
        assert status == 200 and '"name":"p"' in text
        assert '"items":[]' in (await read(client, "/api/v1/nodes/node-1/proxy/pods"))[1]
    finally:
        await client.close()


async def nobody(kubeconfig: Path) -> None:
    client = connect(find_access(str(kubeconfig)), SystemClock(), user_agent="tests")
    try:
        status, text = await read(client, "/api/v1/namespaces/default/pods/p/log")
        assert status == 500 and "connect: connection refused" in text
    finally:
        await client.close()


def test_logs_of_nodes_elsewhere(tmp_path: Path) -> None:
    with server_process(tmp_path, "--disable-admission-plugins", "ServiceAccount") as server:
        with nodes(server.kubeconfig.with_name("node-fleet.kubeconfig")):
            asyncio.run(story(server.kubeconfig))
        asyncio.run(nobody(server.kubeconfig))
