"""Measures the resource usage of the node, of its Pods and of their containers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.cri.client import CriError
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cgroups import CgroupManager
from setpoint.node.host.machine import (
    ROOT,
    Filesystem,
    Memory,
    Processes,
    read_boot_time,
    read_cpu_seconds,
    read_filesystem,
    read_memory,
    read_processes,
)
from setpoint.node.host.node_report import RuntimeClient
from setpoint.node.host.runtime_labels import CONTAINER_NAME, NODE
from setpoint.node.runtime.interface import Usage
from setpoint.wire.grpc import Code

log = logging.getLogger("setpoint.node")

MAX_AGE = 10.0
"""Seconds for which a measurement is used again."""
_TIMEOUT = 30.0
_LIST_ATTEMPTS = 4
_MIN_INTERVAL = 1.0
"""Seconds that two samples must be apart to calculate a rate from them."""
_SECOND = 1_000_000_000


class CpuUsage(NamedTuple):
    at: int
    """Nanoseconds since the epoch."""
    core_nano_seconds: int
    """CPU time since the start, in nanoseconds."""
    nano_cores: int | None
    """The present usage in billionths of a core; None if it is not known yet."""


class MemoryUsage(NamedTuple):
    """The memory usage of a container, Pod or node in bytes. A value that the runtime does not report is None."""

    at: int
    usage: int | None
    working_set: int | None
    rss: int | None = None
    available: int | None = None
    """The distance from the limit; None if there is no limit."""
    page_faults: int | None = None
    major_page_faults: int | None = None


class NetworkUsage(NamedTuple):
    """The number of bytes and errors of a network interface."""

    at: int
    name: str
    rx_bytes: int
    rx_errors: int
    tx_bytes: int
    tx_errors: int


class ContainerStats(NamedTuple):
    name: str
    id: str
    cpu: CpuUsage | None
    memory: MemoryUsage | None
    rootfs_bytes: int | None
    """The size of the writable layer; None if it is not known."""
    rootfs_inodes: int | None
    swap_bytes: int | None = None


@dataclass(slots=True)
class PodStats:
    """The usage of a Pod."""

    uid: str
    name: str
    namespace: str
    cpu: CpuUsage | None = None
    memory: MemoryUsage | None = None
    network: tuple[NetworkUsage, ...] = ()
    processes: int | None = None
    containers: dict[str, ContainerStats] = field(default_factory=dict)


@dataclass(slots=True)
class NodeStats:
    """The usage of the machine."""

    cpu: CpuUsage
    memory: Memory
    processes: Processes
    node_fs: Filesystem | None
    """The file system of volumes and logs; None if it could not be measured."""
    image_fs: Filesystem | None
    image_bytes: int | None
    """The size of all images, as the runtime reports it; None if it does not."""
    boot_time: float
    network: tuple[NetworkUsage, ...] = ()
    pods_cgroup: Mapping[str, int] = field(default_factory=dict)
    """The usage of the cgroup of all Pods; see `cgroups.read_usage`."""


@dataclass(slots=True)
class Measurement:
    at: datetime
    node: NodeStats
    pods: dict[str, PodStats]
    """Pods by uid."""


class StatsCollector:
    """Measures on demand. Concurrent callers share a measurement."""

    def __init__(
        self,
        node_name: str,
        client: RuntimeClient,
        pool: BlockingPool,
        clock: Clock,
        *,
        node_fs: Path,
        image_fs: Path,
        cgroups: CgroupManager | None = None,
        root: Path = ROOT,
    ) -> None:
        """Create the collector. `node_fs` and `image_fs` are directories of the file systems for Pods and images."""
        self._node_name = node_name
        self._client = client
        self._pool = pool
        self._clock = clock
        self._node_fs = node_fs
        self._image_fs = image_fs
        self._cgroups = cgroups
        self._root = root
        self._lock = asyncio.Lock()
        self._latest: Measurement | None = None
        self._latest_at = float("-inf")
        self._cpu_samples: dict[str, CpuUsage] = {}
        """The last sample by the id of the container or sandbox, from which rates are calculated."""

    @property
    def latest(self) -> Measurement | None:
        """The last measurement; None before the first one."""
        return self._latest

    def usage(self, uid: str) -> dict[str, Usage]:
        """Return the usage of the Pod's containers by name, as measured last."""
        pod = self._latest.pods.get(uid) if self._latest is not None else None
        return {name: container_usage(each) for name, each in pod.containers.items()} if pod is not None else {}

    async def measure(self, max_age: float = MAX_AGE) -> Measurement:
        """Return a measurement that is at most `max_age` seconds old. Raise what the runtime's client raises."""
        async with self._lock:
            latest = self._latest
            if latest is None or self._clock.monotonic() - self._latest_at > max_age:
                latest = self._latest = await self._measure()
                self._latest_at = self._clock.monotonic()
            return latest

    async def _measure(self) -> Measurement:
        samples: dict[str, CpuUsage] = {}
        found = await self._list_pods()
        pods: dict[str, PodStats] = {}
        for sandbox in found.stats:
            pod = self._pod(sandbox, samples)
            # An ended sandbox may remain beside its successor.
            if pod.uid not in pods or pod.containers:
                pods[pod.uid] = pod
        if self._cgroups is not None:
            # Containerd 1.6 counts the processes of the sandbox alone.
            for uid, number in (await self._cgroups.process_counts()).items():
                if uid in pods:
                    pods[uid].processes = number
        node = await self._measure_node(samples)
        self._cpu_samples = samples
        return Measurement(self._clock.now(), node, pods)

    # -- Pods ----------------------------------------------------------------------------------------------------------

    async def _list_pods(self) -> Any:
        request = {"filter": {"label_selector": {NODE: self._node_name}}}
        for _ in range(_LIST_ATTEMPTS - 1):
            try:
                return await self._client.call("ListPodSandboxStats", request, timeout=_TIMEOUT)
            except CriError as error:
                # Containerd 1.6 fails as a whole if a container ends meanwhile.
                if error.code is not Code.NOT_FOUND:
                    raise
        return await self._client.call("ListPodSandboxStats", request, timeout=_TIMEOUT)

    def _pod(self, sandbox: Any, samples: dict[str, CpuUsage]) -> PodStats:
        about, linux = sandbox.attributes, sandbox.linux
        pod = PodStats(about.metadata.uid, about.metadata.name, about.metadata.namespace)
        pod.cpu = self._cpu(about.id, linux, samples)
        pod.memory = _memory(linux)
        pod.network = _network(linux)
        if linux.HasField("process"):
            pod.processes = _value(linux.process, "process_count")
        for each in linux.containers:
            name = each.attributes.labels.get(CONTAINER_NAME) or each.attributes.metadata.name
            layer = each.writable_layer if each.HasField("writable_layer") else None
            pod.containers[name] = ContainerStats(
                name,
                each.attributes.id,
                self._cpu(each.attributes.id, each, samples),
                _memory(each),
                _value(layer, "used_bytes"),
                _value(layer, "inodes_used"),
                _value(each.swap, "swap_usage_bytes") if each.HasField("swap") else None,
            )
        return pod

    def _cpu(self, identity: str, owner: Any, samples: dict[str, CpuUsage]) -> CpuUsage | None:
        if not owner.HasField("cpu"):
            return None
        total = _value(owner.cpu, "usage_core_nano_seconds")
        if total is None:
            return None
        rate = self._rate(identity, owner.cpu.timestamp, total)
        return self._sample(
            identity,
            owner.cpu.timestamp,
            total,
            _value(owner.cpu, "usage_nano_cores") if rate is None else rate,
            samples,
        )

    def _sample(self, identity: str, at: int, total: int, rate: int | None, samples: dict[str, CpuUsage]) -> CpuUsage:
        found, before = CpuUsage(at, total, rate), self._cpu_samples.get(identity)
        # A sample too close to the last one is not the start of the next interval.
        keep = before is not None and at - before.at < _MIN_INTERVAL * _SECOND
        samples[identity] = before if keep and before is not None else found
        return found

    def _rate(self, identity: str, at: int, total: int) -> int | None:
        """Return the usage since the last sample in billionths of a core; None if it cannot be calculated."""
        before = self._cpu_samples.get(identity)
        if before is None:
            return None
        if at - before.at < _MIN_INTERVAL * _SECOND:
            return before.nano_cores
        return max(0, (total - before.core_nano_seconds) * _SECOND // (at - before.at))

    # -- the node ------------------------------------------------------------------------------------------------------

    async def _measure_node(self, samples: dict[str, CpuUsage]) -> NodeStats:
        memory, processes, seconds, boot_time, network = await self._pool.run(self._read_machine)
        at, total = int(self._clock.now().timestamp() * _SECOND), int(seconds * _SECOND)
        return NodeStats(
            self._sample("", at, total, self._rate("", at, total), samples),
            memory,
            processes,
            await self._filesystem(self._node_fs),
            await self._filesystem(self._image_fs),
            await self._image_bytes(),
            boot_time,
            tuple(each._replace(at=at) for each in network),
            await self._cgroups.usage(self._cgroups.kubepods) if self._cgroups is not None else {},
        )

    def _read_machine(self) -> tuple[Memory, Processes, float, float, list[NetworkUsage]]:
        root = self._root
        return (
            read_memory(root),
            read_processes(root),
            read_cpu_seconds(root),
            read_boot_time(root),
            read_interfaces(root),
        )

    async def _filesystem(self, path: Path) -> Filesystem | None:
        try:
            return await self._pool.run(read_filesystem, path)
        except OSError as error:
            log.warning("cannot measure the file system of %s: %s", path, error)
            return None

    async def _image_bytes(self) -> int | None:
        try:
            found = await self._client.call("ImageFsInfo", {}, timeout=_TIMEOUT)
        except Exception as error:  # the other numbers are useful without this one
            log.debug("the runtime does not report the size of the images: %s", error)
            return None
        sizes = [_value(each, "used_bytes") for each in found.image_filesystems]
        return sum(each or 0 for each in sizes) if sizes else None


def container_usage(stats: ContainerStats) -> Usage:
    cpu, memory = stats.cpu, stats.memory
    return Usage(
        (cpu.nano_cores or 0) if cpu is not None else 0,
        (memory.working_set or 0) if memory is not None else 0,
        cpu.core_nano_seconds / _SECOND if cpu is not None else 0.0,
    )


def pod_usage(stats: PodStats) -> Usage:
    """Return the usage of the whole Pod. If the runtime does not report it, that is the sum of the containers."""
    parts = [container_usage(each) for each in stats.containers.values()]
    cpu, memory = stats.cpu, stats.memory
    return Usage(
        cpu.nano_cores if cpu is not None and cpu.nano_cores is not None else sum(each.cpu_nano for each in parts),
        memory.working_set
        if memory is not None and memory.working_set is not None
        else sum(each.memory_bytes for each in parts),
        cpu.core_nano_seconds / _SECOND if cpu is not None else sum(each.cpu_seconds for each in parts),
    )


def node_usage(stats: NodeStats) -> Usage:
    return Usage(stats.cpu.nano_cores or 0, stats.memory.working_set, stats.cpu.core_nano_seconds / _SECOND)


def read_interfaces(root: Path = ROOT) -> list[NetworkUsage]:
    """Return the network interfaces of the agent's network namespace, without loopback. Blocks."""
    try:
        lines = (root / "proc/net/dev").read_text().splitlines()[2:]
    except OSError:
        return []
    found = []
    for line in lines:
        name, _, rest = line.partition(":")
        values = rest.split()
        if name.strip() != "lo" and len(values) >= 11 and all(each.isdecimal() for each in values[:11]):
            found.append(NetworkUsage(0, name.strip(), int(values[0]), int(values[2]), int(values[8]), int(values[10])))
    return found


def _memory(owner: Any) -> MemoryUsage | None:
    if not owner.HasField("memory"):
        return None
    memory = owner.memory
    return MemoryUsage(
        memory.timestamp,
        _value(memory, "usage_bytes"),
        _value(memory, "working_set_bytes"),
        _value(memory, "rss_bytes"),
        _value(memory, "available_bytes") or None,
        _value(memory, "page_faults"),
        _value(memory, "major_page_faults"),
    )


def _network(linux: Any) -> tuple[NetworkUsage, ...]:
    """Return the interfaces of a Pod, the default one first."""
    if not linux.HasField("network"):
        return ()
    network = linux.network
    listed = [*([network.default_interface] if network.HasField("default_interface") else ()), *network.interfaces]
    found = {
        each.name: NetworkUsage(
            network.timestamp,
            each.name,
            _value(each, "rx_bytes") or 0,
            _value(each, "rx_errors") or 0,
            _value(each, "tx_bytes") or 0,
            _value(each, "tx_errors") or 0,
        )
        for each in listed
    }
    return tuple(found.values())


def _value(message: Any, name: str) -> int | None:
    """Return a wrapped number of CRI; None if it is not set."""
    return int(getattr(message, name).value) if message is not None and message.HasField(name) else None
