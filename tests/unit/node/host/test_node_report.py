"""The Node of a real machine: resources, conditions, Events, and what the API server stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from runtime_answers import RuntimeAnswers
from stopped_clock import StoppedClock, settle

from setpoint.client.resources import builtin
from setpoint.node.heartbeat import Heartbeat
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.eviction_signals import DEFAULT_HARD, parse_thresholds
from setpoint.node.host.machine import Filesystem, MachineFacts
from setpoint.node.host.node_report import (
    HostNodeReporter,
    NodeReportSettings,
    aggregate_errors,
    enforced_limits,
    host_allocatable,
    host_capacity,
    image_list,
    relist_error,
    runtime_version,
)
from setpoint.node.node_state import POD_NETWORK, AddressPool, NodeState
from setpoint.node.options import NodeTemplate
from setpoint.reconcile.events import EventRecorder

NODES, EVENTS = builtin("nodes"), builtin("events")
GI = 1 << 30
FACTS = MachineFacts(4, 8 * GI, 0, "machine", "uuid", "boot-1", "6.1", "Debian", "arm64", {2 << 20: 64 << 20})
READY = [{"type": "RuntimeReady", "status": True}, {"type": "NetworkReady", "status": True}]
VERSION = {"runtime_name": "containerd", "runtime_version": "1.6.20~ds1"}
IMAGES = [
    {"id": "sha256:a", "repo_tags": ["r/a:1"], "repo_digests": ["r/a@sha256:1"], "size": 10},
    {"id": "sha256:b", "repo_tags": [f"r/b:{number}" for number in range(7)], "size": 20},
]


def make_client(conditions: Any = None, **fields: Any) -> RuntimeAnswers:
    status = {"conditions": READY if conditions is None else conditions}
    return RuntimeAnswers(Version=VERSION, Status={"status": status, **fields}, ListImages={"images": IMAGES})


class Machine:
    """A reporter of a machine with given facts."""

    def __init__(self, root: Path, clock: Any, client: RuntimeAnswers, **settings: Any) -> None:
        self.node = NodeState("real-1", "192.0.2.7", AddressPool(POD_NETWORK))
        self.client = client
        self.pool = BlockingPool(1)
        labels = {"pool": "metal", "kubernetes.io/hostname": "other"}
        self.template = NodeTemplate(labels=labels, taints=({"key": "k", "effect": "NoSchedule"},))
        self.reporter = HostNodeReporter(
            self.node,
            client,
            self.pool,
            clock,
            NodeReportSettings("v1.37.0", **settings),
            self.template,
            node_fs=root,
            root=root,
        )
        self.root = root
        self.set_boot("boot-1")

    def set_boot(self, boot_id: str) -> None:
        for path, content in {
            "proc/meminfo": "MemTotal: 8388608 kB\n",
            "proc/sys/kernel/random/boot_id": boot_id,
            "sys/devices/system/cpu/online": "0-3",
        }.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(content)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


def test_capacity_and_allocatable() -> None:
    capacity = host_capacity(FACTS, Filesystem(1, 100 * GI, 50 * GI, 50 * GI, 1000, 900), 110)
    assert capacity == {
        "cpu": "4",
        "memory": "8Gi",
        "pods": "110",
        "ephemeral-storage": "100Gi",
        "hugepages-2Mi": "64Mi",
    }
    settings = NodeReportSettings("v1", kube_reserved={"cpu": "500m", "memory": "1Gi"}, system_reserved={"cpu": "1"})
    left = host_allocatable({**capacity, "example.com/gpu": "3"}, settings)
    # 10 % in single precision, as the kubelet calculates it.
    assert left["ephemeral-storage"] == "96636764000"
    assert left == {
        "cpu": "2500m",
        "memory": f"{7 * 1024 - 100 - 64}Mi",
        "pods": "110",
        "ephemeral-storage": "96636764000",
        "hugepages-2Mi": "64Mi",
        "example.com/gpu": "3",
    }


def test_all_pods_together_may_use_what_is_not_reserved() -> None:
    settings = NodeReportSettings("v1", kube_reserved={"cpu": "500m", "memory": "1Gi"})
    assert enforced_limits({"cpu": "4", "memory": "8Gi"}, settings) == (3500, 7 * GI)
    assert enforced_limits({}, settings) == (0, 0)


def test_more_reserved_than_there_is() -> None:
    settings = NodeReportSettings("v1", kube_reserved={"memory": "9Gi", "cpu": "8"}, eviction_hard=())
    left = host_allocatable(host_capacity(FACTS, None, 10), settings)
    assert (left["cpu"], left["memory"]) == ("0", "0")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.6.20~ds1", "containerd://1.6.20"),
        ("v2.3.4", "containerd://2.3.4"),
        ("1.7.0-rc.1+x", "containerd://1.7.0-rc.1+x"),
        ("", "containerd://Unknown"),
    ],
)
def test_the_version_of_the_runtime(text: str, shown: str) -> None:
    assert runtime_version("containerd", text) == shown


def test_messages() -> None:
    assert aggregate_errors(["", "a", "a", ""]) == "a"
    assert aggregate_errors(["a", "b"]) == "[a, b]"
    assert aggregate_errors([]) == ""
    assert relist_error(None, 5.0) == "PLEG is not healthy: pleg has yet to be successful"
    assert relist_error(0.0, 180.0) == ""
    assert relist_error(0.0, 185.5) == ("PLEG is not healthy: pleg was last seen active 3m5.5s ago; threshold is 3m0s")


async def test_images_are_sorted_by_size_and_have_at_most_five_names() -> None:
    found = (await make_client().call("ListImages", {}, timeout=1)).images
    assert image_list(found, 50) == [
        {"names": [f"r/b:{number}" for number in range(5)], "sizeBytes": 20},
        {"names": ["r/a@sha256:1", "r/a:1"], "sizeBytes": 10},
    ]
    assert len(image_list(found, 1)) == 1


async def test_a_status(tmp_path: Path, clock: StoppedClock) -> None:
    handlers = [{"name": "runc", "features": {"user_namespaces": True}}, {"name": ""}]
    client = make_client(runtime_handlers=handlers, features={"supplemental_groups_policy": True})
    machine = Machine(tmp_path, clock, client, addresses=("192.0.2.7", "2001:db8::7"))
    await machine.reporter.observe()
    status = machine.reporter.status(machine.node, {"capacity": {"example.com/gpu": "2"}}, ("192.0.2.7", 10300))
    assert status["addresses"] == [
        {"type": "InternalIP", "address": "192.0.2.7"},
        {"type": "InternalIP", "address": "2001:db8::7"},
        {"type": "Hostname", "address": "real-1"},
    ]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10300}}
    assert status["capacity"]["memory"] == "8Gi" and status["capacity"]["example.com/gpu"] == "2"
    assert status["allocatable"]["memory"] == f"{8 * 1024 - 100}Mi" and status["allocatable"]["example.com/gpu"] == "2"
    info = status["nodeInfo"]
    assert (info["containerRuntimeVersion"], info["kubeletVersion"]) == ("containerd://1.6.20", "v1.37.0")
    assert [each["name"] for each in status["runtimeHandlers"]] == ["", "runc"]
    assert status["runtimeHandlers"][1]["features"] == {"recursiveReadOnlyMounts": False, "userNamespaces": True}
    assert status["features"] == {"supplementalGroupsPolicy": True}
    assert [each["type"] for each in status["conditions"]][-1] == "Ready"
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"


async def test_resources_that_are_gone_are_removed(tmp_path: Path, clock: StoppedClock) -> None:
    machine = Machine(tmp_path, clock, make_client())
    await machine.reporter.observe()
    current = {"capacity": {"hugepages-2Mi": "0"}, "allocatable": {"example.com/gpu": "1"}}
    status = machine.reporter.status(machine.node, current, None)
    assert status["capacity"]["hugepages-2Mi"] is None
    assert status["allocatable"]["example.com/gpu"] is None


async def test_readiness_follows_the_runtime(tmp_path: Path, clock: StoppedClock) -> None:
    client = make_client()
    machine = Machine(tmp_path, clock, client)
    reporter = machine.reporter
    assert "container runtime status check may not have completed yet" in reporter.not_ready()
    assert "missing node capacity for resources: cpu, memory, pods, ephemeral-storage" in reporter.not_ready()
    working, client.answers["Status"] = client.answers["Status"], None
    await reporter.observe()
    assert reporter.not_ready() == (
        "[container runtime status check may not have completed yet, network state unknown]"
    )
    client.answers["Status"] = working
    await reporter.observe()
    assert reporter.not_ready() == ""

    unready = {"type": "NetworkReady", "reason": "NetworkPluginNotReady", "message": "cni plugin not initialized"}
    client.answers["Status"] = {"status": {"conditions": [READY[0], unready]}}
    await reporter.observe()
    assert reporter.not_ready() == (
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
        "message:cni plugin not initialized"
    )
    client.answers["Status"] = None
    await clock.advance(29)
    await reporter.observe()
    assert "is down" not in reporter.not_ready()
    await clock.advance(1)
    await reporter.observe()
    assert reporter.not_ready().startswith("[container runtime is down, container runtime network not ready:")

    client.answers["Status"] = working
    reporter.health_checks.append(lambda: "PLEG is not healthy: x")
    reporter.shutting_down = True
    await reporter.observe()
    assert reporter.not_ready() == "[PLEG is not healthy: x, node is shutting down]"


async def test_a_runtime_that_returns_is_asked_for_its_version_again(tmp_path: Path, clock: StoppedClock) -> None:
    client = make_client()
    machine = Machine(tmp_path, clock, client)
    await machine.reporter.observe()
    client.answers["Status"], working = None, client.answers["Status"]
    await machine.reporter.observe()
    client.answers |= {"Status": working, "Version": {"runtime_name": "containerd", "runtime_version": "v2.0.1"}}
    await machine.reporter.observe()
    assert machine.reporter.runtime.version == "containerd://2.0.1"


@asynccontextmanager
async def registered(server: Any, machine: Machine) -> AsyncIterator[Heartbeat]:
    recorder = EventRecorder(server.client, server.clock, "kubelet")
    heartbeat = Heartbeat(
        {"real-1": machine.node},
        lambda _: server.client,
        server.clock,
        recorder,
        template=machine.template,
        reporter=machine.reporter,
    )
    machine.reporter.on_urgent_change = lambda: heartbeat.report_soon("real-1")
    tasks = [asyncio.ensure_future(heartbeat.run()), asyncio.ensure_future(recorder.write_queue.run())]
    await heartbeat.registered.wait()
    try:
        yield heartbeat
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def reasons(server: Any) -> list[str]:
    await settle()
    found = (await server.client.list(EVENTS, "default")).items
    return sorted(event["reason"] for event in found)


async def test_a_node_registers_becomes_ready_and_reports_pressure(tmp_path: Path, local_server: Any) -> None:
    client = make_client()
    working, client.answers["Status"] = client.answers["Status"], None
    machine = Machine(tmp_path / "root", local_server.clock, client)
    await machine.reporter.observe()
    async with registered(local_server, machine):
        node = await local_server.client.get(NODES, "real-1")
        labels = node["metadata"]["labels"]
        assert labels["pool"] == "metal" and labels["kubernetes.io/hostname"] == "other"
        assert (
            labels["beta.kubernetes.io/arch"]
            == labels["kubernetes.io/arch"]
            == node["status"]["nodeInfo"]["architecture"]
        )
        assert node["metadata"]["annotations"] == {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        assert {"key": "k", "effect": "NoSchedule"} in node["spec"]["taints"]
        assert ready(node)["status"] == "False"
        assert await reasons(local_server) == [
            "NodeAllocatableEnforced",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientMemory",
            "NodeHasSufficientPID",
            "Starting",
        ]

        client.answers["Status"] = working
        await machine.reporter.observe()
        await settle()
        node = await local_server.client.get(NODES, "real-1")
        assert ready(node) | {"lastHeartbeatTime": "", "lastTransitionTime": ""} == {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": "",
            "lastTransitionTime": "",
        }
        assert "NodeReady" in await reasons(local_server)

        machine.reporter.pressures = lambda: ["DiskPressure"]
        machine.reporter.shutting_down = True
        await machine.reporter.observe()
        found = await reasons(local_server)
        assert "NodeHasDiskPressure" in found and "NodeNotReady" in found
        node = await local_server.client.get(NODES, "real-1")
        disk = next(each for each in node["status"]["conditions"] if each["type"] == "DiskPressure")
        assert (disk["status"], disk["reason"], disk["message"]) == (
            "True",
            "KubeletHasDiskPressure",
            "kubelet has disk pressure",
        )


def ready(node: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
    return found


async def test_a_reboot_is_recorded_once_and_labels_are_restored(tmp_path: Path, local_server: Any) -> None:
    first = Machine(tmp_path / "root", local_server.clock, make_client())
    await first.reporter.observe()
    async with registered(local_server, first):
        pass
    assert "Rebooted" not in await reasons(local_server)
    await local_server.client.patch(NODES, "real-1", {"metadata": {"labels": {"kubernetes.io/os": "other"}}})
    await local_server.clock.advance(1)  # names of Events are made of the time
    second = Machine(tmp_path / "root", local_server.clock, make_client())
    second.set_boot("boot-2")
    await second.reporter.observe()
    async with registered(local_server, second) as heartbeat:
        heartbeat.report_soon("real-1")
        await settle()
        node = await local_server.client.get(NODES, "real-1")
        assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
        assert node["status"]["nodeInfo"]["bootID"] == "boot-2"
        await settle()
        events = (await local_server.client.list(EVENTS, "default")).items
        (reboot,) = [event for event in events if event["reason"] == "Rebooted"]
        assert reboot["type"] == "Warning" and reboot["count"] == 1
        assert reboot["message"] == "Node real-1 has been rebooted, boot id: boot-2"


async def test_a_reboot_is_one_event_although_the_stored_status_is_old(tmp_path: Path, clock: StoppedClock) -> None:
    machine = Machine(tmp_path, clock, make_client())
    await machine.reporter.observe()
    after = machine.reporter.status(machine.node, {}, None)
    before = {"nodeInfo": {"bootID": "boot-0"}}
    found = [event.reason for _ in range(2) for event in machine.reporter.transitions(machine.node, before, after)]
    assert found == ["Rebooted"]


async def test_conditions_that_another_client_changed_are_corrected(tmp_path: Path, local_server: Any) -> None:
    machine = Machine(tmp_path / "root", local_server.clock, make_client())
    await machine.reporter.observe()
    async with registered(local_server, machine):
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped"}
        change = {"status": {"conditions": [unknown]}}
        # The agent's informer stores what it observes here.
        machine.node.object = await local_server.client.patch(
            NODES, "real-1", change, kind="strategic", subresource="status"
        )
        await machine.reporter.observe()
        await settle()
        assert ready(await local_server.client.get(NODES, "real-1"))["status"] == "True"


async def test_run_checks_often_until_the_node_is_ready(tmp_path: Path, clock: StoppedClock) -> None:
    client = make_client()
    working, client.answers["Status"] = client.answers["Status"], None
    machine = Machine(tmp_path, clock, client)
    task = asyncio.ensure_future(machine.reporter.run())
    await wait_for_calls(client, "Status", 1)
    client.answers["Status"] = working
    await clock.advance(0.1)
    await wait_for_calls(client, "Status", 2)
    assert machine.reporter.not_ready() == ""
    await clock.advance(4)
    assert count(client, "Status") == 2
    await clock.advance(1)
    await wait_for_calls(client, "Status", 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def count(client: RuntimeAnswers, method: str) -> int:
    return sum(name == method for name, _ in client.calls)


async def wait_for_calls(client: RuntimeAnswers, method: str, number: int) -> None:
    """Wait for work in threads, which takes real time."""
    async with asyncio.timeout(10):
        while count(client, method) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await settle()


def test_defaults_reserve_memory_for_eviction() -> None:
    assert NodeReportSettings("v1").eviction_hard == parse_thresholds(DEFAULT_HARD)
