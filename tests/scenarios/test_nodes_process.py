"""Nodes in a separate process: the server connects to them over HTTPS."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from component_process import component_process
from server_process import server_process
from up_process import up_process

from setpoint.client import Client
from setpoint.client.cluster_choice import find_access
from setpoint.client.https import connect
from setpoint.client.resources import builtin
from setpoint.system import SystemClock, outward_address

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not outward_address(), reason="this machine has no address but its own"),
]


@contextmanager
def nodes(kubeconfig: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "setpoint", "nodes", "--kubeconfig", str(kubeconfig), "--nodes", "2"]
    with open(kubeconfig.parent / "nodes.log", "w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            assert "2 nodes are registered" in process.stdout.readline()
            yield
        finally:
            process.terminate()
            process.wait(15)
        log.seek(0)
        assert "forbidden" not in log.read(), "a fleet may do everything that its nodes do"


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
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {
                    "containers": [container],
                    "nodeName": "node-2",
                    "automountServiceAccountToken": False,
                    "tolerations": [{"operator": "Exists"}],
                },
            }
        )
        await client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "by-hand", "annotations": {"simulate.setpoint.dev/node": "true"}},
            }
        )
        async with asyncio.timeout(30), client.watch(("v1", "Node"), resource_version="0") as watch:
            async for _, node in watch:
                if (node["metadata"].get("labels") or {}).get("kubernetes.io/hostname") == "by-hand":
                    break
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
        assert '"name":"p"' not in (await read(client, "/api/v1/nodes/node-1/proxy/pods"))[1]
    finally:
        await client.close()


async def nobody(kubeconfig: Path) -> None:
    client = connect(find_access(str(kubeconfig)), SystemClock(), user_agent="tests")
    try:
        status, text = await read(client, "/api/v1/namespaces/default/pods/p/log")
        assert status == 500 and "connect: connection refused" in text
    finally:
        await client.close()


def test_logs_of_nodes_in_another_process(tmp_path: Path) -> None:
    with server_process(tmp_path, "--disable-admission-plugins", "ServiceAccount") as server:
        with nodes(server.kubeconfig.with_name("node-fleet.kubeconfig")):
            asyncio.run(story(server.kubeconfig))
        asyncio.run(nobody(server.kubeconfig))


async def component_log(kubeconfig: Path, component: str) -> str:
    """The log of a component's Pod on the first node, as soon as it is there."""
    client = connect(find_access(str(kubeconfig)), SystemClock(), user_agent="tests")
    try:
        async with asyncio.timeout(30):
            while True:
                status, text = await read(client, f"/api/v1/namespaces/kube-system/pods/{component}-node-1/log")
                if status == 200 and text:
                    return text
                await asyncio.sleep(0.2)
    finally:
        await client.close()


async def gone(kubeconfig: Path, name: str) -> None:
    client = connect(find_access(str(kubeconfig)), SystemClock(), user_agent="tests")
    try:
        async with asyncio.timeout(30):
            while True:
                status, _ = await read(client, f"/api/v1/namespaces/kube-system/pods/{name}")
                if status == 404:
                    return
                await asyncio.sleep(0.2)
    finally:
        await client.close()


def test_components_in_other_processes_are_pods_with_logs(tmp_path: Path) -> None:
    """Each is a process of its own: the nodes show them as long as they run."""
    with server_process(tmp_path) as server, nodes(server.kubeconfig.with_name("node-fleet.kubeconfig")):
        assert "serving on " in asyncio.run(component_log(server.kubeconfig, "kube-apiserver"))
        with component_process("scheduler", server.kubeconfig):
            assert "became leader of kube-scheduler" in asyncio.run(component_log(server.kubeconfig, "kube-scheduler"))
        asyncio.run(gone(server.kubeconfig, "kube-scheduler-node-1"))


def test_nodes_of_the_server_are_not_run_a_second_time(tmp_path: Path) -> None:
    """The bare `setpoint nodes`, typed in the place of `setpoint get nodes`."""

    async def registered(kubeconfig: Path) -> list[tuple[str, str]]:
        client = connect(find_access(str(kubeconfig)), SystemClock(), user_agent="tests")
        try:
            found = (await client.list(builtin("nodes"))).items
        finally:
            await client.close()
        return [(node["metadata"]["name"], node["status"]["addresses"][1]["address"]) for node in found]

    with up_process(tmp_path, "--nodes", "2", "--store", "memory") as kubeconfig:
        command = [sys.executable, "-m", "setpoint", "nodes", "--kubeconfig", str(kubeconfig), "--nodes"]
        refused = subprocess.run([*command, "3"], capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1
        assert refused.stderr.startswith("error: the server runs simulated nodes itself, among them node-1,")
        assert asyncio.run(registered(kubeconfig)) == [("node-1", "node-1"), ("node-2", "node-2")]


def test_nodes_beside_a_server_without_nodes(tmp_path: Path) -> None:
    """Also after a restart, when the nodes are registered already."""
    with up_process(tmp_path, "--nodes", "0", "--store", "memory") as kubeconfig:
        for _ in range(2):
            with component_process("nodes", kubeconfig, "--nodes", "2") as said:
                assert "2 nodes are registered" in said


def test_a_server_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], current-context: c,"
        " contexts: [{name: c, context: {cluster: c, user: c}}], users: [{name: c, user: {}}]}"
    )
    command = [sys.executable, "-m", "setpoint", "nodes", "--kubeconfig", str(kubeconfig)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(
            "waiting for the API server: the connection to the server http://127.0.0.1:1 was refused"
        )
    finally:
        process.terminate()
        process.wait(15)
        assert process.stderr is not None
        process.stderr.close()
