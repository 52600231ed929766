"""The kubelet's API of a real node, on a scripted container runtime."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from connection_pair import NODE, KubeletClient, connection_pair

from setpoint.kinds.typed import Pod
from setpoint.node.cri.client import CriError
from setpoint.node.cri.enums import ContainerState, NamespaceMode
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.disk_usage import PodDiskUsage
from setpoint.node.host.host_node import HostNode
from setpoint.node.host.log_rotation import MAX_FILES, MAX_SIZE
from setpoint.node.host.machine import Memory, Processes
from setpoint.node.host.pod_connections import PodConnections, namespace_path
from setpoint.node.host.runtime_labels import NODE as NODE_LABEL
from setpoint.node.host.stats import (
    ContainerStats,
    CpuUsage,
    Measurement,
    MemoryUsage,
    NetworkUsage,
    NodeStats,
    PodStats,
)
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.system import SystemClock
from setpoint.wire.grpc import Code

POD = cast(
    Pod,
    {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    },
)
STATUS = {
    "containerStatuses": [
        {
            "name": "c",
            "image": "i",
            "imageID": "sha256:1",
            "containerID": "containerd://id-1",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {"terminated": {"containerID": "containerd://id-0"}},
        }
    ]
}
LINE = b"2026-01-01T00:00:00.000000000Z stdout F %b\n"


@dataclass
class Worker:
    pod: Pod = field(default_factory=lambda: POD)
    reported: Mapping[str, Any] = field(default_factory=lambda: STATUS)
    containers: tuple[Any, ...] = (
        SimpleNamespace(name="c", probes=[SimpleNamespace(kind="liveness", failures=1, successes=2)]),
    )


class Agent:
    name, object = NODE, None

    @property
    def node(self) -> Agent:
        return self

    def worker(self, namespace: str, name: str) -> Worker | None:
        return Worker() if (namespace, name) == ("default", "p") else None

    def workers(self) -> list[Worker]:
        return [Worker()]


Answer = Callable[[Any], Any]


class Runtime:
    """A container runtime whose answers are functions of the requests, by method."""

    def __init__(self, **answers: Answer) -> None:
        self.answers = answers
        self.calls: list[str] = []

    async def call(self, method: str, request: Any = None, *, timeout: float = 0.0) -> Any:
        self.calls.append(method)
        if method not in self.answers:
            raise CriError(Code.UNIMPLEMENTED, f"unknown method {method}")
        return self.answers[method](request)


class Stats:
    def __init__(self) -> None:
        self.failure: CriError | None = None

    pods: Mapping[str, PodDiskUsage] = {}

    async def measure(self) -> Measurement:
        if self.failure is not None:
            raise self.failure
        cpu = CpuUsage(1_000_000_000, 3_000_000_000, 250_000_000)
        memory = MemoryUsage(1_000_000_000, 900, 700, 500)
        container = ContainerStats("c", "id-1", cpu, memory, 4096, 1)
        interfaces = (NetworkUsage(1, "eth0", 10, 0, 20, 1),)
        pod = PodStats("u", "p", "default", cpu, memory, interfaces, 2, {"c": container})
        node = NodeStats(
            cpu._replace(core_nano_seconds=9_000_000_000),
            Memory(10_000, 4_000, 3_000, 0, 0),
            Processes(5, 100),
            None,
            None,
            None,
            0.0,
        )
        return Measurement(SystemClock().now(), node, {"u": pod, "foreign": PodStats("foreign", "x", "y")})


@asynccontextmanager
async def a_node(runtime: Runtime, directory: Path, stats: Stats | None = None) -> AsyncIterator[KubeletClient]:
    pool, clock, measured = BlockingPool(2), SystemClock(), stats or Stats()
    configuration = {"kind": "KubeletConfiguration"}
    host = HostNode(Agent(), runtime, measured, measured, NodeDirectories(directory), pool, clock, configuration)
    try:
        yield KubeletClient(KubeletApi(host, clock))
    finally:
        host.close()
        pool.close()


def logs_of(directory: Path, state: int = ContainerState.EXITED) -> Runtime:
    """A runtime with two runs of a container."""

    def status(request: Any) -> Any:
        path = directory / f"{request['container_id']}.log"
        return SimpleNamespace(status=SimpleNamespace(log_path=str(path), state=state))

    return Runtime(ContainerStatus=status)


async def test_logs(tmp_path: Path) -> None:
    (tmp_path / "id-0.log").write_bytes(LINE % b"former")
    (tmp_path / "id-1.log").write_bytes(LINE % b"one" + LINE % b"two")
    async with a_node(logs_of(tmp_path), tmp_path) as client:
        assert await client.get("/containerLogs/default/p/c") == (200, b"one\ntwo\n")
        assert await client.get("/containerLogs/default/p/c?tailLines=1&follow=true") == (200, b"two\n")
        assert await client.get("/containerLogs/default/p/c?previous=true") == (200, b"former\n")
        assert await client.get("/containerLogs/default/p/x") == (404, b'container "x" not found in pod "p"')
        assert await client.get("/containerLogs/default/q/c") == (404, b'pod "q" does not exist')
        (tmp_path / "id-1.log").unlink()
        path = tmp_path / "id-1.log"
        text = f'failed to try resolving symlinks in path "{path}": lstat {path}: no such file or directory\n'
        assert await client.get("/containerLogs/default/p/c") == (200, text.encode())
    async with a_node(Runtime(), tmp_path) as client:
        text = "unable to retrieve container logs for containerd://id-1"
        assert await client.get("/containerLogs/default/p/c") == (400, text.encode())


async def test_the_own_running_logs_are_rotated(tmp_path: Path) -> None:
    log = tmp_path / "id-1.log"
    log.write_bytes(LINE % b"one")
    runtime = logs_of(tmp_path, ContainerState.RUNNING)

    def container(identity: str, node: str) -> Any:
        return SimpleNamespace(id=identity, labels={NODE_LABEL: node})

    found = [container("id-1", NODE), container("id-2", "another")]
    runtime.answers["ListContainers"] = lambda request: SimpleNamespace(containers=found)
    runtime.answers["ReopenContainerLog"] = lambda request: log.touch()
    pool = BlockingPool(1)
    clock, stats = SystemClock(), Stats()
    host = HostNode(Agent(), runtime, stats, stats, NodeDirectories(tmp_path), pool, clock)
    rotation = host.log_rotation(MAX_SIZE, MAX_FILES)
    rotation._max_size = 1
    await rotation.check()
    await rotation.check()
    assert runtime.calls.count("ReopenContainerLog") == 1 and log.read_bytes() == b""
    assert runtime.calls.count("ContainerStatus") == 1, "paths are remembered"
    found.clear()
    await rotation.check()
    assert not host._log_paths
    pool.close()


async def test_what_the_node_shows(tmp_path: Path) -> None:
    stats = Stats()
    async with a_node(Runtime(), tmp_path, stats) as client:
        listed = orjson.loads((await client.get("/pods"))[1])
        assert listed["items"] == [{**POD, "status": STATUS}]
        running = orjson.loads((await client.get("/runningpods/"))[1])
        assert running["items"][0]["spec"]["containers"] == [{"name": "c", "image": "sha256:1", "resources": {}}]
        assert orjson.loads((await client.get("/configz"))[1]) == {"kubeletconfig": {"kind": "KubeletConfiguration"}}
        assert await client.get("/logs/syslog") == (405, b"logs endpoint is disabled.\n")
        assert await client.get("/unknown") == (404, b"404 page not found\n")
        found = orjson.loads((await client.get("/stats/summary"))[1])
        assert [each["podRef"]["name"] for each in found["pods"]] == ["p"]
        assert found["node"]["memory"]["workingSetBytes"] == 6000
        resource = (await client.get("/metrics/resource"))[1].decode().splitlines()
        for line in (
            'container_cpu_usage_seconds_total{container="c",namespace="default",pod="p"} 3',
            "node_cpu_usage_seconds_total 9",
            "node_memory_working_set_bytes 6000",
            'pod_memory_working_set_bytes{namespace="default",pod="p"} 700',
            "resource_scrape_error 0",
        ):
            assert line in resource
        cadvisor = (await client.get("/metrics/cadvisor"))[1].decode()
        labels = 'container="c",id="/kubepods/podu/id-1",image="i",name="id-1",namespace="default",pod="p"'
        assert f"container_memory_rss{{{labels}}} 500\n" in cadvisor
        assert f"container_memory_usage_bytes{{{labels}}} 900\n" in cadvisor
        assert f"container_fs_usage_bytes{{{labels}}} 4096\n" in cadvisor
        assert 'container_network_transmit_bytes_total{id="/kubepods/podu",interface="eth0",' in cadvisor
        probes = (await client.get("/metrics/probes"))[1].decode()
        assert 'probe_type="Liveness",result="failed"} 1\n' in probes.replace('pod_uid="u",', "")
        stats.failure = CriError(Code.UNAVAILABLE, "gone")
        assert (await client.get("/metrics/resource"))[1].decode().splitlines()[-1] == "resource_scrape_error 1"
        code, text = await client.get("/stats/summary")
        assert code == 500 and text.endswith(b"rpc error: code = Unavailable desc = gone")


async def test_checkpoints(tmp_path: Path) -> None:
    async with a_node(Runtime(), tmp_path) as client:
        code, text = await client.get("/checkpoint/default/p/c", "POST")
        assert code == 500
        unimplemented = "rpc error: code = Unimplemented desc = unknown method CheckpointContainer"
        assert text.decode() == f"checkpointing of default/p/c failed ({unimplemented})"
        assert (await client.get("/checkpoint/default/p/c"))[0] == 405
    async with a_node(Runtime(CheckpointContainer=lambda request: None), tmp_path) as client:
        code, text = await client.get("/checkpoint/default/p/c", "POST")
        (path,) = orjson.loads(text)["items"]
        assert path.startswith(f"{tmp_path}/checkpoints/checkpoint-p_default-c-20")


# -- connections to Pods -----------------------------------------------------------------------------------------------


def sandbox_runtime(network: int = NamespaceMode.NODE, info: str = "") -> Runtime:
    options = SimpleNamespace(options=SimpleNamespace(network=network))
    status = SimpleNamespace(linux=SimpleNamespace(namespaces=options))
    sandboxes = [SimpleNamespace(id="old", created_at=1), SimpleNamespace(id="sandbox", created_at=2)]
    return Runtime(
        ListPodSandbox=lambda request: SimpleNamespace(items=sandboxes),
        PodSandboxStatus=lambda request: SimpleNamespace(status=status, info={"info": info}),
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_connections_to_pods_on_the_host_network(address: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read()  # until the client ends its side
        writer.write(b"%d" % len(received))
        writer.close()

    if address == "::1" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    listener = await asyncio.start_server(serve, address, 0)
    port = listener.sockets[0].getsockname()[1]
    connections = PodConnections(sandbox_runtime(), SystemClock())
    here, there = connection_pair()
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(connections.run(POD, port, there))
        for _ in range(10):
            here.write(b"x" * 10_000)
        here.close()
        answer = await here.read()
    assert (answer, await running) == (b"100000", "")
    listener.close()
    connections.close()


async def test_connections_that_fail() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    _, there = connection_pair()
    connections = PodConnections(sandbox_runtime(), SystemClock())
    assert await connections.run(POD, port, there) == (
        f'failed to execute portforward for host network: failed to connect to localhost:{port} inside namespace "sandbox",'
        f" IPv4: dial tcp4 127.0.0.1:{port}: connect: connection refused"
        f" IPv6: dial tcp6 [::1]:{port}: connect: connection refused"
    )
    connections.close()
    info = json.dumps({"pid": 0, "runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": "/no/such"}]}}})
    connections = PodConnections(sandbox_runtime(NamespaceMode.POD, info), SystemClock())
    assert await connections.run(POD, port, there) == (
        'failed to execute portforward in network namespace "/no/such": failed to open netns: No such file or directory'
    )
    connections.close()
    none = Runtime(ListPodSandbox=lambda request: SimpleNamespace(items=[]))
    connections = PodConnections(none, SystemClock())
    assert await connections.run(POD, port, there) == "sandbox for pod p_default is not running"
    connections.close()


@pytest.mark.parametrize(
    ("info", "path"),
    [
        ({"pid": 7}, "/proc/7/ns/net"),
        ({"pid": 7, "runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}]}}}, "/proc/7/ns/net"),
        ({"runtimeSpec": {"linux": {"namespaces": [{"type": "network", "path": "/n"}]}}}, "/n"),
        ({}, ""),
        ([], ""),
    ],
)
def test_paths_of_network_namespaces(info: object, path: str) -> None:
    assert namespace_path({"info": json.dumps(info)}) == path
    assert namespace_path({"info": "{"}) == namespace_path({}) == ""
