"""The machine side of a node for real: its own containerd, the sandbox image, cgroups, usage, garbage collection."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cri_pods import CriPod
from real_machine import RealMachine
from real_registry import Registry

from setpoint.node.cri.client import CriClient
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cgroups import CgroupManager
from setpoint.node.host.cni_config import write_cni_config
from setpoint.node.host.containerd_config import ContainerdSettings, containerd_socket
from setpoint.node.host.containerd_process import ContainerdProcess, process_start
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.image_gc import GarbageCollector
from setpoint.node.host.image_import import ImageImporter
from setpoint.node.host.machine import Filesystem, has_capability, read_machine
from setpoint.node.host.node_report import HostNodeReporter, NodeReportSettings
from setpoint.node.host.pause_image import PAUSE_IMAGE
from setpoint.node.host.preflight import Options, checks, passed
from setpoint.node.host.runtime_labels import CONTAINER_NAME, NODE, POD_UID
from setpoint.node.host.stats import StatsCollector, pod_usage
from setpoint.node.node_state import POD_NETWORK, AddressPool, NodeState
from setpoint.node.options import NodeTemplate
from setpoint.system import SystemClock

pytestmark = pytest.mark.real
NAME = "real-1"
SYS_RESOURCE = 24


class Node:
    """The parts of an agent that these tests are about."""

    def __init__(self, machine: RealMachine) -> None:
        self.machine = machine
        base = machine.directory / "node"
        self.directories = NodeDirectories(base / "root", base / "logs", base / "run")
        self.pool, self.clock = BlockingPool(), SystemClock()
        self.settings = ContainerdSettings(
            PAUSE_IMAGE,
            registry_mirrors={"*": ["http://127.0.0.1:5000"]},
            can_lower_oom_scores=has_capability(SYS_RESOURCE),
        )
        self.client = CriClient(f"unix://{containerd_socket(self.directories)}", self.clock)
        self.containerd = self.process()
        self.cgroups = CgroupManager(self.pool, self.clock, machine.cgroup_root, pod_pids_limit=64)

    def process(self) -> ContainerdProcess:
        return ContainerdProcess(self.directories, self.pool, self.clock, self.settings, ping=self.ping)

    async def ping(self) -> None:
        await self.client.call("Status", {}, timeout=5.0)

    async def start(self) -> None:
        write_cni_config(self.directories, ["10.244.9.0/24", "fd00:9::/64"])
        await self.containerd.start()
        if self.containerd.log_file not in self.machine.logs:
            self.machine.logs.append(self.containerd.log_file)
        facts = read_machine()
        await ImageImporter(self.containerd.socket, self.clock).ensure_pause_image(facts.architecture)
        await self.cgroups.start(facts.cpus * 1000, facts.memory_bytes)

    async def sandbox(self, pod: Any) -> CriPod:
        meta = pod["metadata"]
        config = {
            "metadata": {"name": meta["name"], "namespace": "default", "uid": meta["uid"]},
            "hostname": meta["name"],
            "log_directory": str(self.directories.pod_logs("default", meta["name"], meta["uid"])),
            "labels": {NODE: NAME, POD_UID: meta["uid"]},
            "linux": {"cgroup_parent": self.cgroups.parent(pod), "security_context": {"namespace_options": {"pid": 0}}},
        }
        await self.cgroups.create_pod(pod)
        answer = await self.client.call("RunPodSandbox", {"config": config})
        return CriPod(self.client, answer.pod_sandbox_id, config)


def make_pod(name: str, **resources: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main", "resources": resources}]},
    }


def labels(name: str) -> dict[str, str]:
    return {NODE: NAME, POD_UID: f"uid-{name}", CONTAINER_NAME: "main"}


@pytest.fixture
async def node(machine: RealMachine, registry: Registry) -> AsyncIterator[Node]:
    made = Node(machine)
    await made.start()
    yield made
    for sandbox in (await made.client.call("ListPodSandbox", {})).items:
        await made.client.call("StopPodSandbox", {"pod_sandbox_id": sandbox.id})
        await made.client.call("RemovePodSandbox", {"pod_sandbox_id": sandbox.id})
    made.client.close()
    await made.containerd.stop()
    assert await made.containerd.kill_shims() == 0
    await made.cgroups.remove_all()
    assert machine.cgroups() == []
    made.pool.close()


async def test_a_pod_runs_in_the_local_sandbox_image_with_both_address_families(node: Node, registry: Registry) -> None:
    pod = await node.sandbox(make_pod("web"))
    status = (await node.client.call("PodSandboxStatus", {"pod_sandbox_id": pod.sandbox_id})).status
    assert status.network.ip.startswith("10.244.9.")
    assert [each.ip[:7] for each in status.network.additional_ips] == ["fd00:9:"]
    image = registry.image("busybox")
    assert image.startswith("127.0.0.1:")
    container = await pod.start(image, "sleep", "1000")
    # With a shared process namespace, the program of the sandbox image reaps orphans.
    await pod.execute(container, "sh", "-c", "(sleep 0.3 &) ; true")  # returns when the orphan has ended
    for _ in range(40):
        listed = await pod.execute(container, "ps", "-o", "pid,ppid,stat,args")
        if "[sleep]" not in listed:
            break
        await asyncio.sleep(0.05)
    assert "/pause" in listed and "[sleep]" not in listed
    images = (await node.client.call("ListImages", {})).images
    assert PAUSE_IMAGE in [tag for each in images for tag in each.repo_tags]


async def test_a_mirror_stands_for_all_registries(node: Node, registry: Registry) -> None:
    name = registry.image("busybox").partition("/")[2]
    answer = await node.client.call("PullImage", {"image": {"image": f"registry.example/{name}"}})
    assert answer.image_ref


async def test_containerd_is_killed_adopted_and_restarted(node: Node, registry: Registry) -> None:
    pod = await node.sandbox(make_pod("steady"))
    container = await pod.start(registry.image("busybox"), "sleep", "1000")
    before = (await node.client.call("ContainerStatus", {"container_id": container})).status.started_at

    other = node.process()
    await other.start()
    assert other.pid == node.containerd.pid

    first, restarted = node.containerd.pid, asyncio.Event()
    assert first is not None
    node.containerd.on_restart = restarted.set
    task = asyncio.ensure_future(node.containerd.run())
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(30):
        await restarted.wait()
    assert node.containerd.pid != first and process_start(first) is None
    after = (await node.client.call("ContainerStatus", {"container_id": container})).status
    assert (after.started_at, after.state) == (before, 1)
    assert "1" in await pod.execute(container, "sh", "-c", "echo 1")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_limits_and_usage_of_a_pod(node: Node, registry: Registry) -> None:
    made = make_pod("limited", requests={"cpu": "100m"}, limits={"cpu": "500m", "memory": "64Mi"})
    pod = await node.sandbox(made)
    collector = StatsCollector(
        NAME,
        node.client,
        node.pool,
        node.clock,
        node_fs=node.directories.root,
        image_fs=node.directories.containerd,
        cgroups=node.cgroups,
    )
    container = await pod.start(
        registry.image("busybox"), "sh", "-c", "while true; do true; done", labels=labels("limited")
    )
    await collector.measure()
    await asyncio.sleep(1.5)
    measured = await collector.measure(max_age=-1)
    usage = pod_usage(measured.pods["uid-limited"])
    # The quota is that of the Pod's cgroup: half of a processor.
    assert 100_000_000 < usage.cpu_nano < 700_000_000
    assert collector.usage("uid-limited")["main"].memory_bytes < 64 << 20
    assert (measured.pods["uid-limited"].processes or 0) >= 2
    assert measured.node.pods_cgroup["working_set"] > 0
    assert measured.node.image_bytes

    found = await node.cgroups.usage(node.cgroups.parent(made))
    assert found["available"] < 64 << 20
    made["spec"]["containers"][0]["resources"]["limits"]["memory"] = "96Mi"
    await node.cgroups.update_pod(made)
    assert (await node.cgroups.usage(node.cgroups.parent(made)))["available"] > 64 << 20
    with pytest.raises(AssertionError, match="fork"):
        await pod.execute(container, "sh", "-c", "for i in $(seq 100); do sleep 100 > /dev/null 2>&1 & done")

    assert await node.cgroups.pods() == {"uid-limited"}
    await pod.remove()
    await node.cgroups.remove_pod("uid-limited")
    assert await node.cgroups.pods() == set()


async def test_a_node_reports_itself_and_collects_garbage(node: Node, registry: Registry) -> None:
    state = NodeState(NAME, "172.31.0.11", AddressPool(POD_NETWORK))
    settings, template = NodeReportSettings("v1.37.0"), NodeTemplate()
    reporter = HostNodeReporter(
        state, node.client, node.pool, node.clock, settings, template, node_fs=node.directories.root
    )
    await reporter.observe()
    assert reporter.not_ready() == ""
    status = reporter.status(state, {}, None)
    version = ".".join(map(str, node.containerd.version or ()))
    assert status["nodeInfo"]["containerRuntimeVersion"] == f"containerd://{version}"

    pod = await node.sandbox(make_pod("ended"))
    await pod.start(registry.image("busybox"), "true", labels=labels("ended"))
    kept = {"uid-ended"}

    async def image_fs() -> Filesystem:
        return Filesystem(1, 100, 1, 99, 0, 0)

    collector = GarbageCollector(
        NAME, node.client, node.clock, image_fs, lambda: kept, lambda *_: None, PAUSE_IMAGE, min_age=0.0
    )
    await collector.reclaim()
    assert {PAUSE_IMAGE, registry.image("busybox")} <= await tags(node)
    kept.clear()
    for _ in range(100):
        await collector.reclaim()
        if await tags(node) == {PAUSE_IMAGE}:
            break
        await asyncio.sleep(0.05)
    assert await tags(node) == {PAUSE_IMAGE}
    assert len((await node.client.call("ListContainers", {})).containers) == 0


async def tags(node: Node) -> set[str]:
    return {tag for each in (await node.client.call("ListImages", {})).images for tag in each.repo_tags}


def test_this_machine_passes_the_checks(machine: RealMachine) -> None:
    found = checks(Options(port=10250))
    assert passed(found), found
