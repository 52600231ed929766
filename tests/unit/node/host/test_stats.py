"""Usage of Pods and the node: rates, the Summary API, and disk usage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from runtime_answers import RuntimeAnswers
from stopped_clock import StoppedClock

from setpoint.node.cri.client import CriError
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.disk_usage import DiskUsage, DiskUsageCollector, directory_usage, measure_pod
from setpoint.node.host.stats import StatsCollector, node_usage, pod_usage, read_interfaces
from setpoint.node.host.summary import summary
from setpoint.wire.grpc import Code

SECOND = 10**9
POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
    "spec": {"containers": [{"name": "app"}], "volumes": [{"name": "data", "emptyDir": {}}]},
    "status": {
        "startTime": "2030-01-01T00:00:00Z",
        "containerStatuses": [{"name": "app", "state": {"running": {"startedAt": "2030-01-01T00:00:05Z"}}}],
    },
}


def number(value: int) -> dict[str, int]:
    return {"value": value}


def sandbox(at: int, cpu: int, *, uid: str = "u-1", container: str = "c-1") -> dict[str, Any]:
    usage = {"timestamp": at, "usage_core_nano_seconds": number(cpu)}
    memory = {"timestamp": at, "working_set_bytes": number(300), "usage_bytes": number(400), "rss_bytes": number(200)}
    return {
        "attributes": {"id": f"s-{uid}", "metadata": {"name": "web", "namespace": "shop", "uid": uid}},
        "linux": {
            "cpu": usage,
            "memory": {**memory, "available_bytes": number(700)},
            "network": {
                "timestamp": at,
                "default_interface": {"name": "eth0", "rx_bytes": number(10), "tx_bytes": number(20)},
            },
            "process": {"process_count": number(5)},
            "containers": [
                {
                    "attributes": {
                        "id": container,
                        "metadata": {"name": "app"},
                        "labels": {"io.kubernetes.container.name": "app"},
                    },
                    "cpu": usage,
                    "memory": memory,
                    "writable_layer": {"used_bytes": number(4096), "inodes_used": number(3)},
                }
            ],
        },
    }


class Node:
    def __init__(self, root: Path) -> None:
        for path, content in {
            "proc/meminfo": "MemTotal: 100 kB\nMemFree: 40 kB\nMemAvailable: 60 kB\n",
            "proc/stat": "cpu  100 0 0 0 0 0 0 0 0 0\nbtime 1700000000\n",
            "proc/loadavg": "0 0 0 1/30 5\n",
            "proc/sys/kernel/pid_max": "1000\n",
            "proc/net/dev": "Inter-| x\n face |x\n    lo: 1 1 0 0 0 0 0 0 1 1 0\n  eth0: 7 1 2 0 0 0 0 0 8 1 3 0 0 0 0 0\n",
        }.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        self.clock = StoppedClock()
        self.client = RuntimeAnswers(ImageFsInfo={"image_filesystems": [{"used_bytes": number(99)}]})
        self.pool = BlockingPool(1)
        self.collector = StatsCollector(
            "real-1", self.client, self.pool, self.clock, node_fs=root, image_fs=root, root=root
        )

    def set(self, *sandboxes: Any) -> None:
        self.client.answers["ListPodSandboxStats"] = {"stats": list(sandboxes)}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_rates_are_calculated_from_two_samples(node: Node) -> None:
    node.set(sandbox(100 * SECOND, SECOND))
    first = await node.collector.measure()
    assert node.client.calls[0][1] == {"filter": {"label_selector": {"setpoint.dev/node": "real-1"}}}
    assert first.pods["u-1"].containers["app"].cpu == (100 * SECOND, SECOND, None)
    assert node.collector.usage("u-1")["app"] == (0, 300, 1.0)

    node.set(sandbox(110 * SECOND, 6 * SECOND))
    await node.clock.advance(10)
    assert (await node.collector.measure(max_age=10)) is first
    await node.clock.advance(1)
    second = await node.collector.measure(max_age=10)
    assert second.pods["u-1"].containers["app"].cpu == (110 * SECOND, 6 * SECOND, SECOND // 2)
    assert pod_usage(second.pods["u-1"]) == (SECOND // 2, 300, 6.0)
    assert node_usage(second.node).memory_bytes == 40 * 1024

    # A sample right after the last one repeats its rate, and is not the start of the next interval.
    node.set(sandbox(110 * SECOND + 1, 6 * SECOND))
    third = await node.collector.measure(max_age=-1)
    assert third.pods["u-1"].cpu is not None and third.pods["u-1"].cpu.nano_cores == SECOND // 2
    node.set(sandbox(120 * SECOND, 7 * SECOND))
    fourth = await node.collector.measure(max_age=-1)
    assert fourth.pods["u-1"].cpu is not None and fourth.pods["u-1"].cpu.nano_cores == SECOND // 10


async def test_a_restarted_container_has_no_rate_and_ended_ones_are_forgotten(node: Node) -> None:
    node.set(sandbox(100 * SECOND, 50 * SECOND), sandbox(100 * SECOND, 1, uid="u-2", container="c-2"))
    await node.collector.measure()
    node.set(sandbox(110 * SECOND, SECOND, container="c-3"))
    measured = await node.collector.measure(max_age=-1)
    cpu = measured.pods["u-1"].containers["app"].cpu
    assert cpu is not None and cpu.nano_cores is None
    assert node.collector.usage("u-2") == {}
    assert sorted(node.collector._cpu_samples) == ["", "c-3", "s-u-1"]


async def test_a_runtime_that_does_not_answer(node: Node) -> None:
    with pytest.raises(CriError):
        await node.collector.measure()
    assert node.collector.latest is None and node.collector.usage("u-1") == {}


async def test_a_container_that_ends_while_it_is_measured(node: Node) -> None:
    node.set(sandbox(100 * SECOND, SECOND))
    node.client.errors = [CriError(Code.NOT_FOUND, "no such container")] * 2
    assert list((await node.collector.measure()).pods) == ["u-1"]
    node.client.errors = [CriError(Code.NOT_FOUND, "no such container")] * 4
    with pytest.raises(CriError, match="no such container"):
        await node.collector.measure(max_age=-1)


async def test_the_summary(node: Node, tmp_path: Path) -> None:
    node.set(sandbox(100 * SECOND, SECOND))
    measured = await node.collector.measure()
    disk = measure_pod(POD, NodeDirectories(tmp_path / "n", tmp_path / "l", tmp_path / "r"), 0.0)
    found = summary("real-1", measured, [POD, {"metadata": {"uid": "other"}}], {"u-1": disk})
    about = found["node"]
    assert (about["nodeName"], about["startTime"]) == ("real-1", "2023-11-14T22:13:20Z")
    assert about["memory"]["availableBytes"] == 60 * 1024 and about["memory"]["workingSetBytes"] == 40 * 1024
    assert about["memory"]["usageBytes"] == 60 * 1024
    assert about["rlimit"]["maxpid"] == 1000 and about["rlimit"]["curproc"] == 30
    assert about["runtime"]["imageFs"]["usedBytes"] == 99
    assert about["network"]["name"] == "eth0" and about["network"]["rxBytes"] == 7
    (pod,) = found["pods"]
    assert pod["podRef"] == {"name": "web", "namespace": "shop", "uid": "u-1"}
    assert pod["memory"]["workingSetBytes"] == 300 and pod["memory"]["availableBytes"] == 700
    assert pod["cpu"] == {"time": "1970-01-01T00:01:40Z", "usageCoreNanoSeconds": SECOND}
    assert pod["process_stats"] == {"process_count": 5}
    assert pod["network"]["interfaces"][0]["txBytes"] == 20
    (container,) = pod["containers"]
    assert (container["name"], container["startTime"]) == ("app", "2030-01-01T00:00:05Z")
    assert container["rootfs"]["usedBytes"] == 4096 and container["logs"]["usedBytes"] == 0
    assert [volume["name"] for volume in pod["volume"]] == ["data"]
    assert pod["ephemeral-storage"]["usedBytes"] == 4096


def test_interfaces_of_a_machine_without_proc(tmp_path: Path) -> None:
    assert read_interfaces(tmp_path) == []


def test_a_directory_is_measured_without_counting_links_twice(tmp_path: Path) -> None:
    empty = directory_usage(tmp_path)
    assert empty.inodes == 1
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_bytes(b"x" * 10_000)
    os.link(tmp_path / "sub/file", tmp_path / "other")
    (tmp_path / "link").symlink_to("/")
    found = directory_usage(tmp_path)
    assert found.inodes == 4
    used = (tmp_path / "other").stat().st_blocks * 512
    assert used >= 10_000 and found.used_bytes >= empty.used_bytes + used
    assert found.used_bytes < empty.used_bytes + 2 * used + 8192
    assert directory_usage(tmp_path / "missing") == DiskUsage()


async def test_pods_are_measured_once_a_minute_and_forgotten(tmp_path: Path) -> None:
    directories = NodeDirectories(tmp_path / "n", tmp_path / "l", tmp_path / "r")
    data = directories.volume("u-1", "kubernetes.io~empty-dir", "data")
    data.mkdir(parents=True)
    log = directories.pod_logs("shop", "web", "u-1") / "app"
    log.mkdir(parents=True)
    (log / "0.log").write_bytes(b"x" * 5000)
    clock, pool = StoppedClock(), BlockingPool(1)
    collector = DiskUsageCollector(directories, pool, clock)
    await collector.measure([POD])
    before = collector.pods["u-1"]
    assert before.logs["app"].used_bytes >= 5000 and before.total.inodes >= 3
    (data / "big").write_bytes(b"x" * 100_000)
    await clock.advance(59)
    await collector.measure([POD])
    assert collector.pods["u-1"].volumes["data"].used_bytes < 100_000
    await clock.advance(1)
    await collector.measure([POD])
    assert collector.pods["u-1"].volumes["data"].used_bytes >= 100_000
    await collector.measure([])
    assert collector.pods == {}
    pool.close()
