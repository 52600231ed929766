"""Logs, commands and connections of real containers through the kubelet's API."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import urlencode

import orjson
import pytest
from connection_pair import NODE, KubeletClient, messages_of, output_of
from cri_pods import CriPod, cri_client, run_sandbox
from real_containerd import Containerd
from real_registry import Registry

from setpoint.kinds.typed import Pod
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.host_node import HostNode
from setpoint.node.host.log_rotation import ContainerLogFile, LogRotation
from setpoint.node.host.runtime_labels import NODE as NODE_LABEL
from setpoint.node.host.runtime_labels import POD_UID
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.remote_streams import RESIZE, STATUS, STDERR, STDIN, STDOUT
from setpoint.system import SystemClock

pytestmark = pytest.mark.real

ECHO = "while read line; do echo out $line; echo err $line >&2; done; echo end; exit 5"


@dataclass
class Worker:
    """What the API shows of a Pod."""

    pod: Pod
    reported: dict[str, Any]
    containers: tuple[Any, ...] = ()


class Agent:
    """An agent with one Pod, whose containers the test has started."""

    object = None
    name = NODE

    def __init__(self) -> None:
        self.found: list[Worker] = []

    @property
    def node(self) -> Agent:
        return self

    def worker(self, namespace: str, name: str) -> Worker | None:
        return next((each for each in self.found if each.pod["metadata"]["name"] == name), None)

    def workers(self) -> list[Worker]:
        return self.found

    def show(self, pod: CriPod, containers: dict[str, str], **spec: Any) -> str:
        """Let the API show a Pod with these running containers, and return its name."""
        meta = pod.config["metadata"]
        specs = [{"name": name, **spec} for name in containers]
        statuses = [
            {"name": name, "state": {"running": {}}, "containerID": f"containerd://{identity}"}
            for name, identity in containers.items()
        ]
        found = {"metadata": meta, "spec": {"containers": specs}}
        self.found.append(Worker(cast(Pod, found), {"containerStatuses": statuses}))
        return str(meta["name"])


class NoStats:
    pods: Mapping[str, Any] = MappingProxyType({})

    async def measure(self) -> Any:
        raise NotImplementedError


@dataclass
class Node:
    agent: Agent
    host: HostNode
    client: KubeletClient
    start: Callable[..., Any]
    """Starts a Pod with one container, which has the remaining arguments as its command."""
    pool: BlockingPool


@asynccontextmanager
async def a_node(containerd: Containerd, registry: Registry) -> AsyncIterator[Node]:
    clock, pool, agent = SystemClock(), BlockingPool(2), Agent()
    pods: list[CriPod] = []
    async with cri_client(containerd) as client:

        async def start(*command: str, sandbox: dict[str, Any] | None = None, **config: Any) -> tuple[str, str]:
            pod = await run_sandbox(client, containerd, **(sandbox or {}))
            pods.append(pod)
            labels = {NODE_LABEL: NODE}
            identity = await pod.start(registry.image("busybox"), *command, labels=labels, **config)
            return agent.show(pod, {"main": identity}, tty=bool(config.get("tty"))), identity

        host = HostNode(agent, client, NoStats(), NoStats(), NodeDirectories(root=containerd.directory), pool, clock)
        try:
            yield Node(agent, host, KubeletClient(KubeletApi(host, clock)), start, pool)
        finally:
            host.close()
            pool.close()
            for pod in pods:
                await pod.remove()


def command_path(verb: str, pod: str, *command: str, **flags: int) -> str:
    return f"/{verb}/default/{pod}/main?" + urlencode([*flags.items(), *(("command", each) for each in command)])


def exit_code(status: bytes) -> str:
    found = orjson.loads(status)
    return "0" if found["status"] == "Success" else str(found["details"]["causes"][0]["message"])


async def test_commands_with_input_that_ends_and_exit_codes(containerd: Containerd, registry: Registry) -> None:
    async with a_node(containerd, registry) as node:
        pod, _ = await node.start("sleep", "1000")
        data = os.urandom(100_000)
        counting = command_path("exec", pod, "sh", "-c", "wc -c; exit 5", input=1, output=1, error=1)
        async with node.client.spdy(counting, [STATUS, STDIN, STDOUT, STDERR]) as process:
            process.write(STDIN, data)
            process.close_channel(STDIN)
            found = await output_of(process)
        assert found[STDOUT].strip() == b"100000" and exit_code(found[STATUS]) == "5"
        copying = command_path("exec", pod, "cat", input=1, output=1, error=1)
        async with node.client.websocket(copying, "v5.channel.k8s.io") as socket:
            for at in range(0, len(data), 10_000):
                socket.send(bytes((STDIN,)) + data[at : at + 10_000])
            socket.send(bytes((255, STDIN)))
            messages = await messages_of(socket)
        assert messages[STDOUT] == data and exit_code(messages[STATUS]) == "0"
        echo = command_path("exec", pod, "sh", "-c", ECHO, input=1, output=1, error=1)
        async with node.client.websocket(echo, "v4.channel.k8s.io") as socket:
            socket.send(bytes((STDIN,)) + b"one\n")
            seen: dict[int, bytes] = {}
            while not (seen.get(STDOUT) and seen.get(STDERR)):
                message = await socket.receive()
                assert message is not None
                seen[message[0]] = seen.get(message[0], b"") + message[1:]
        assert (seen[STDOUT], seen[STDERR]) == (b"out one\n", b"err one\n"), "v4 cannot end the input"


async def test_a_slow_reader_of_much_output_gets_everything(containerd: Containerd, registry: Registry) -> None:
    async with a_node(containerd, registry) as node:
        pod, _ = await node.start("sleep", "1000")
        path = command_path("exec", pod, "sh", "-c", "head -c 30000000 /dev/zero", output=1, error=1)
        async with node.client.spdy(path, [STATUS, STDOUT, STDERR]) as process:
            await asyncio.sleep(0.3)
            found = await output_of(process)
        assert len(found[STDOUT]) == 30_000_000 and exit_code(found[STATUS]) == "0"


async def test_a_terminal_has_the_size_of_the_clients(containerd: Containerd, registry: Registry) -> None:
    async with a_node(containerd, registry) as node:
        pod, _ = await node.start("sleep", "1000")
        path = command_path("exec", pod, "sh", input=1, output=1, tty=1)
        async with node.client.websocket(path, "v5.channel.k8s.io") as socket:
            socket.send(bytes((RESIZE,)) + b'{"Width":101,"Height":37}')
            socket.send(bytes((STDIN,)) + b"sleep 0.3; stty size; exit 3\n")
            messages = await messages_of(socket)
        assert b"37 101\r\n" in messages[STDOUT] and exit_code(messages[STATUS]) == "3"


async def test_attach_reaches_the_main_program(containerd: Containerd, registry: Registry) -> None:
    async with a_node(containerd, registry) as node:
        pod, _ = await node.start("sh", "-c", ECHO, stdin=True, stdin_once=True)
        path = command_path("attach", pod, input=1, output=1, error=1)
        async with node.client.spdy(path, [STATUS, STDIN, STDOUT, STDERR]) as process:
            process.write(STDIN, b"hello\n")
            process.close_channel(STDIN)
            found = await output_of(process)
        assert (found[STDOUT], found[STDERR]) == (b"out hello\nend\n", b"err hello\n")


async def test_errors_of_the_runtime(containerd: Containerd, registry: Registry) -> None:
    async with a_node(containerd, registry) as node:
        pod, _ = await node.start("sleep", "1000")
        missing = command_path("exec", pod, "/no/such/program", output=1, error=1)
        async with node.client.websocket(missing, "v5.channel.k8s.io") as socket:
            status = orjson.loads((await messages_of(socket))[STATUS])
        assert status["status"] == "Failure" and '"/no/such/program": stat /no/such/program' in status["message"]
        node.agent.found[0].reported["containerStatuses"][0]["containerID"] = "containerd://absent"
        code, text = await node.client.get(missing)
        assert code == 404 and text.startswith(b"rpc error: code = NotFound desc = ")
        code, text = await node.client.get(f"/containerLogs/default/{pod}/main")
        assert (code, text) == (400, b"unable to retrieve container logs for containerd://absent")
        code, text = await node.client.get(f"/checkpoint/default/{pod}/main", "POST")
        assert code == 500 and text.startswith(f"checkpointing of default/{pod}/main failed (rpc error".encode())


class Stream:
    """One connection over the channels of a WebSocket."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.data = b""
        self.error = b""

    async def until(self, text: bytes) -> None:
        while text not in self.data + self.error:
            message = await self._socket.receive()
            assert message is not None, (self.data, self.error)
            if message[0] == 0:
                self.data += message[1:]
            else:
                self.error += message[1:]


@pytest.mark.parametrize("host_network", [False, True])
async def test_port_forward(containerd: Containerd, registry: Registry, host_network: bool) -> None:
    namespaces = {"namespace_options": {"network": 2}} if host_network else {}
    async with a_node(containerd, registry) as node:
        linux = {"cgroup_parent": f"{containerd.cgroup_root}/kubepods/web", "security_context": namespaces}
        labels = {POD_UID: "uid-web"}
        name = {"metadata": {"name": "web", "uid": "uid-web", "namespace": "default"}, "labels": labels}
        sandbox = {**name, "linux": linux, **({"hostname": ""} if host_network else {})}
        port = 8081 if host_network else 8080
        server = f"nc -l -p {port} -e sh -c 'read line; echo got $line; cat'"
        pod, _ = await node.start("sh", "-c", f"{server}; sleep 1000", sandbox=sandbox)
        path = f"/portForward/default/{pod}?port={port}"
        for attempt in range(50):  # the server takes a moment to listen
            async with node.client.websocket(path, "v4.channel.k8s.io") as socket:
                stream = Stream(socket)
                socket.send(b"\x00hello\nrest")
                try:
                    await stream.until(b"got hello\nrest")
                    break
                except AssertionError:
                    assert b"connection refused" in stream.error and attempt < 49, stream.error
                    await asyncio.sleep(0.1)
        async with node.client.websocket(f"/portForward/default/{pod}?port=9", "v4.channel.k8s.io") as socket:
            stream = Stream(socket)
            await stream.until(b"refused IPv6: dial tcp6 [::1]:9: connect: connection refused")
        assert b"error forwarding port 9 to pod web, uid uid-web: failed to execute portforward " in stream.error
        assert (b"for host network" if host_network else b"in network namespace") in stream.error


async def test_logs_are_followed_over_a_rotation(containerd: Containerd, registry: Registry) -> None:
    async with a_node(containerd, registry) as node:
        script = "n=0; while [ $n -lt 40 ]; do n=$((n+1)); echo line $n; sleep 0.1; done; echo last >&2"
        pod, identity = await node.start("sh", "-c", script)
        path = Path(containerd.directory / "logs" / pod / "main.log")

        async def reopen(container_id: str) -> None:
            await node.host._reopen_log(container_id)

        async def none() -> list[ContainerLogFile]:
            return []

        rotation = LogRotation(none, reopen, node.pool, SystemClock())
        seen = b""
        async with asyncio.timeout(60):
            async for piece in await node.client.follow(f"/containerLogs/default/{pod}/main?follow=true"):
                seen += piece
                if piece.endswith((b"line 10\n", b"line 20\n")):
                    assert [each.container_id for each in await node.host._running_logs()] == [identity]
                    await rotation.rotate(ContainerLogFile(identity, path))
        assert seen.decode().splitlines() == [*(f"line {number}" for number in range(1, 41)), "last"]
        code, text = await node.client.get(f"/containerLogs/default/{pod}/main?tailLines=2")
        assert (code, text) == (200, b"line 40\nlast\n")
        code, text = await node.client.get(f"/containerLogs/default/{pod}/main?stream=Stderr&timestamps=true")
        assert text.endswith(b"Z last\n") and len(text) == 36
