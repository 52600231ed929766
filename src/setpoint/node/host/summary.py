"""Formats measurements as the kubelet's Summary API does (`/stats/summary`). Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from setpoint.meta.objects import Obj, ObjView
from setpoint.meta.times import format_time
from setpoint.node.host.disk_usage import DiskUsage, PodDiskUsage
from setpoint.node.host.machine import Filesystem
from setpoint.node.host.stats import (
    ContainerStats,
    CpuUsage,
    Measurement,
    MemoryUsage,
    NetworkUsage,
    NodeStats,
    PodStats,
    pod_usage,
)

_STATUSES = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def summary(node_name: str, measured: Measurement, pods: Iterable[ObjView], disks: Mapping[str, PodDiskUsage]) -> Obj:
    """Return the Summary of the node and of those Pods that were measured. `disks` is by the uid of the Pod."""
    shown = [
        _pod(pod, stats, disks.get(stats.uid), measured)
        for pod in pods
        if (stats := measured.pods.get(pod["metadata"]["uid"])) is not None
    ]
    return {"node": _node(node_name, measured), "pods": shown}


def _node(name: str, measured: Measurement) -> Obj:
    node, at = measured.node, format_time(measured.at)
    memory = node.memory
    found: Obj = {
        "nodeName": name,
        "systemContainers": [_pods_container(node, at)] if node.pods_cgroup else [],
        "startTime": format_time(datetime.fromtimestamp(node.boot_time, UTC)),
        "cpu": _cpu(node.cpu),
        "memory": {
            "time": at,
            "availableBytes": memory.available,
            "usageBytes": memory.total - memory.free,
            "workingSetBytes": memory.working_set,
        },
        "rlimit": {"time": at, "maxpid": node.processes.maximum, "curproc": node.processes.running},
    }
    if memory.swap_total:
        used = memory.swap_total - memory.swap_free
        found["swap"] = {"time": at, "swapAvailableBytes": memory.swap_free, "swapUsageBytes": used}
    if node.network:
        found["network"] = _network(node.network)
    if node.node_fs is not None:
        found["fs"] = _filesystem(node.node_fs, at)
    if node.image_fs is not None:
        images = _filesystem(node.image_fs, at)
        if node.image_bytes is not None:
            images["usedBytes"] = node.image_bytes
        found["runtime"] = {"imageFs": images, "containerFs": _filesystem(node.image_fs, at)}
    return found


def _pods_container(node: NodeStats, at: str) -> Obj:
    """Return the usage of all Pods together, which the kubelet lists as a container of the system."""
    usage = node.pods_cgroup
    memory = {"time": at, "usageBytes": usage.get("usage"), "workingSetBytes": usage.get("working_set")}
    memory |= {"rssBytes": usage.get("rss"), "availableBytes": usage.get("available")}
    return {
        "name": "pods",
        "startTime": format_time(datetime.fromtimestamp(node.boot_time, UTC)),
        "cpu": {"time": at, "usageCoreNanoSeconds": usage.get("cpu_nano_seconds", 0)},
        "memory": _without_none(memory),
    }


def _pod(pod: ObjView, stats: PodStats, disk: PodDiskUsage | None, measured: Measurement) -> Obj:
    at, status = format_time(measured.at), pod.get("status") or {}
    starts = {each["name"]: _started(each) for name in _STATUSES for each in status.get(name) or ()}
    usage = pod_usage(stats)
    found: Obj = {
        "podRef": {"name": stats.name, "namespace": stats.namespace, "uid": stats.uid},
        "startTime": status.get("startTime") or at,
        "containers": [
            _container(each, starts.get(each.name) or at, disk, measured) for each in stats.containers.values()
        ],
        "cpu": _cpu(stats.cpu)
        if stats.cpu is not None
        else {"time": at, "usageNanoCores": usage.cpu_nano, "usageCoreNanoSeconds": round(usage.cpu_seconds * 1e9)},
        "memory": _memory(stats.memory)
        if stats.memory is not None
        else {"time": at, "workingSetBytes": usage.memory_bytes},
    }
    if stats.network:
        found["network"] = _network(stats.network)
    if stats.processes is not None:
        found["process_stats"] = {"process_count": stats.processes}
    if disk is not None:
        found["volume"] = [
            {**_local(each, measured.node.node_fs, at), "name": name} for name, each in disk.volumes.items()
        ]
        found["ephemeral-storage"] = _local(pod_disk_usage(stats, disk), measured.node.node_fs, at)
    return found


def pod_disk_usage(stats: PodStats, disk: PodDiskUsage) -> DiskUsage:
    """Return the local storage that a Pod uses: volumes, logs and the writable layers of its containers."""
    layers = DiskUsage(
        sum(each.rootfs_bytes or 0 for each in stats.containers.values()),
        sum(each.rootfs_inodes or 0 for each in stats.containers.values()),
    )
    return disk.total.plus(layers)


def _container(each: ContainerStats, started: str, disk: PodDiskUsage | None, measured: Measurement) -> Obj:
    at = format_time(measured.at)
    found: Obj = {"name": each.name, "startTime": started}
    if each.cpu is not None:
        found["cpu"] = _cpu(each.cpu)
    if each.memory is not None:
        found["memory"] = _memory(each.memory)
    if each.swap_bytes is not None:
        found["swap"] = {"time": at, "swapUsageBytes": each.swap_bytes}
    if each.rootfs_bytes is not None:
        layer = DiskUsage(each.rootfs_bytes, each.rootfs_inodes or 0)
        found["rootfs"] = _local(layer, measured.node.image_fs, at)
    if disk is not None:
        found["logs"] = _local(disk.logs.get(each.name, DiskUsage()), measured.node.node_fs, at)
    return found


def _started(status: ObjView) -> str:
    return str(((status.get("state") or {}).get("running") or {}).get("startedAt") or "")


def _cpu(cpu: CpuUsage) -> Obj:
    found: Obj = {"time": _time(cpu.at), "usageCoreNanoSeconds": cpu.core_nano_seconds}
    if cpu.nano_cores is not None:
        found["usageNanoCores"] = cpu.nano_cores
    return found


def _memory(memory: MemoryUsage) -> Obj:
    return _without_none(
        {
            "time": _time(memory.at),
            "availableBytes": memory.available,
            "usageBytes": memory.usage,
            "workingSetBytes": memory.working_set,
            "rssBytes": memory.rss,
            "pageFaults": memory.page_faults,
            "majorPageFaults": memory.major_page_faults,
        }
    )


def _network(interfaces: tuple[NetworkUsage, ...]) -> Obj:
    shown = [
        {
            "name": each.name,
            "rxBytes": each.rx_bytes,
            "rxErrors": each.rx_errors,
            "txBytes": each.tx_bytes,
            "txErrors": each.tx_errors,
        }
        for each in interfaces
    ]
    return {"time": _time(interfaces[0].at), **shown[0], "interfaces": shown}


def _filesystem(found: Filesystem, at: str) -> Obj:
    return {
        "time": at,
        "availableBytes": found.available_bytes,
        "capacityBytes": found.capacity_bytes,
        "usedBytes": found.used_bytes,
        "inodesFree": found.inodes_free,
        "inodes": found.inodes,
        "inodesUsed": found.inodes - found.inodes_free,
    }


def _local(used: DiskUsage, where: Filesystem | None, at: str) -> Obj:
    """Return what some files use of their file system."""
    shown = _filesystem(where, at) if where is not None else {"time": at}
    return {**shown, "usedBytes": used.used_bytes, "inodesUsed": used.inodes}


def _time(nanoseconds: int) -> str:
    return format_time(datetime.fromtimestamp(nanoseconds / 1e9, UTC))


def _without_none(values: dict[str, Any]) -> Obj:
    return {name: value for name, value in values.items() if value is not None}
