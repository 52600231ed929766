"""Evicts Pods when the node is low on memory, disk space, inodes or processes, or when they exceed their own storage
limits; as the kubelet does, with its order and messages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from setpoint.kinds.core.pod_demand import pod_limits, pod_requests
from setpoint.kinds.core.podspec.annotations import MIRROR
from setpoint.kinds.core.podspec.resources import BEST_EFFORT, is_sidecar, qos_class
from setpoint.meta.clock import Clock
from setpoint.meta.objects import ObjView
from setpoint.meta.quantity import BINARY, of_value, parse
from setpoint.node.host.disk_usage import DiskUsage, PodDiskUsage
from setpoint.node.host.eviction_signals import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    EPHEMERAL_STORAGE,
    IMAGE_FS_AVAILABLE,
    IMAGE_FS_INODES_FREE,
    INODES,
    MEMORY,
    MEMORY_AVAILABLE,
    MEMORY_PRESSURE,
    NODE_FS_AVAILABLE,
    NODE_FS_INODES_FREE,
    PID_AVAILABLE,
    RESOURCE_OF,
    Observation,
    Threshold,
    conditions_of,
    count_observation,
    observed_quantity,
    thresholds_met,
)
from setpoint.node.host.runtime_labels import CONFIG_SOURCE
from setpoint.node.host.stats import Measurement, PodStats, pod_usage
from setpoint.node.host.summary import pod_disk_usage

log = logging.getLogger("setpoint.node")

EVICTED = "Evicted"
"""The reason of an evicted Pod, and of its Event."""
_PERIOD = 10.0
_CLEANUP_TIMEOUT, _CLEANUP_POLL = 30.0, 1.0
_IMMEDIATE_GRACE_SECONDS = 1
_CRITICAL_PRIORITY = 2_000_000_000
_IMAGE_SIGNALS = (IMAGE_FS_AVAILABLE, IMAGE_FS_INODES_FREE)
_DISK_SIGNALS = (NODE_FS_AVAILABLE, NODE_FS_INODES_FREE, *_IMAGE_SIGNALS)
_MEMORY_SIGNALS = (MEMORY_AVAILABLE, ALLOCATABLE_MEMORY_AVAILABLE)
_MEMORY_PRESSURE_TAINT = "node.kubernetes.io/memory-pressure"


class Eviction(NamedTuple):
    """A Pod to evict: it fails with the reason `EVICTED` and this message, which is that of a Warning Event too."""

    pod: ObjView
    message: str
    grace_seconds: int
    disruption: bool
    """Whether the Pod gets the condition DisruptionTarget with the reason TerminationByKubelet and this message."""


@dataclass(frozen=True, slots=True)
class UsageView:
    """The measured usage of Pods, by uid."""

    pods: Mapping[str, PodStats]
    disks: Mapping[str, PodDiskUsage] = field(default_factory=dict)
    dedicated_image_fs: bool = False
    """Whether images and writable layers are on another file system than volumes and logs."""


# -- pure decisions ----------------------------------------------------------------------------------------------------


def observe(measured: Measurement) -> dict[str, Observation]:
    """Return the observations by signal. A signal that could not be measured is missing."""
    node = measured.node
    found = {}
    if node.memory.total:
        found[MEMORY_AVAILABLE] = Observation(node.memory.available, node.memory.total)
    available = node.pods_cgroup.get("available")
    if available is not None:
        capacity = available + node.pods_cgroup.get("working_set", 0)
        found[ALLOCATABLE_MEMORY_AVAILABLE] = Observation(available, capacity)
    for filesystem, space, inodes in (
        (node.node_fs, NODE_FS_AVAILABLE, NODE_FS_INODES_FREE),
        (node.image_fs, IMAGE_FS_AVAILABLE, IMAGE_FS_INODES_FREE),
    ):
        if filesystem is not None and filesystem.capacity_bytes:
            found[space] = Observation(filesystem.available_bytes, filesystem.capacity_bytes)
        if filesystem is not None and filesystem.inodes:
            found[inodes] = count_observation(filesystem.inodes_free, filesystem.inodes)
    if node.processes.maximum:
        left = node.processes.maximum - node.processes.running
        found[PID_AVAILABLE] = count_observation(left, node.processes.maximum)
    return found


def is_critical(pod: ObjView) -> bool:
    """Return whether a Pod is never evicted: static Pods and those of the system's priority classes."""
    annotations = pod["metadata"].get("annotations") or {}
    static = MIRROR in annotations or annotations.get(CONFIG_SOURCE, "api") != "api"
    return static or (pod["spec"].get("priority") or 0) >= _CRITICAL_PRIORITY


def rank(pods: Iterable[ObjView], signal: str, usage: UsageView) -> list[ObjView]:
    """Order Pods for eviction: those above their requests first, then by priority, then by usage above the request.
    Pods without a measurement come first in each comparison."""

    def priority(pod: ObjView) -> int:
        return int(pod["spec"].get("priority") or 0)

    if signal == PID_AVAILABLE:
        return sorted(pods, key=lambda pod: (priority(pod), -_processes(pod, usage)))
    resource = MEMORY if signal in _MEMORY_SIGNALS else EPHEMERAL_STORAGE

    def key(pod: ObjView) -> tuple[int, int, float]:
        stats = usage.pods.get(pod["metadata"]["uid"])
        if stats is None:
            return 0, priority(pod), float("-inf")
        request = parse(pod_requests({"spec": pod["spec"]}).get(resource, "0")).value()
        if resource == MEMORY:
            used, compared = pod_usage(stats).memory_bytes, request
        else:
            disk = _disk_of(stats, signal, usage)
            inodes = RESOURCE_OF[signal] == INODES
            used, compared = (disk.inodes, 0) if inodes else (disk.used_bytes, request)
        return (1 if used > compared else 2), priority(pod), request - used

    return sorted(pods, key=key)


def _processes(pod: ObjView, usage: UsageView) -> float:
    stats = usage.pods.get(pod["metadata"]["uid"])
    return float("inf") if stats is None else stats.processes or 0


def _disk_of(stats: PodStats, signal: str, usage: UsageView) -> DiskUsage:
    """Return what a Pod uses of the file system that a signal is about."""
    disk = usage.disks.get(stats.uid) or PodDiskUsage(0.0)
    if not usage.dedicated_image_fs:
        return pod_disk_usage(stats, disk)
    return pod_disk_usage(stats, PodDiskUsage(0.0)) if signal in _IMAGE_SIGNALS else disk.total


def eviction_message(
    resource: str,
    pod: ObjView,
    usage: UsageView,
    thresholds: Iterable[Threshold],
    observations: Mapping[str, Observation],
) -> str:
    message = f"The node was low on resource: {resource}. "
    for each in thresholds:
        seen = observations.get(each.signal)
        if RESOURCE_OF[each.signal] == resource and seen is not None:
            quantity = each.amount(seen.capacity).text
            message += f"Threshold quantity: {quantity}, available: {observed_quantity(seen)}. "
            break
    stats = usage.pods.get(pod["metadata"]["uid"])
    if stats is None:
        return message
    spec = pod["spec"]
    level = ((spec.get("resources") or {}).get("requests") or {}).get(MEMORY)
    if resource == MEMORY and level and stats.memory is not None:
        used = of_value(stats.memory.working_set or 0, BINARY).text
        message += f"Pod {stats.name} was using {used}, request is {level}, has larger consumption of {resource}. "
    containers = {each["name"]: each for each in (*spec["containers"], *(spec.get("initContainers") or ()))}
    logs = (usage.disks.get(stats.uid) or PodDiskUsage(0.0)).logs
    for name, measured in stats.containers.items():
        if name not in containers:
            continue
        amount: int | None = None
        if resource == MEMORY and measured.memory is not None:
            amount = measured.memory.working_set
        elif resource == EPHEMERAL_STORAGE and measured.rootfs_bytes is not None:
            amount = measured.rootfs_bytes + logs.get(name, DiskUsage()).used_bytes
        request = ((containers[name].get("resources") or {}).get("requests") or {}).get(resource, "0")
        if amount is not None and amount > parse(request).value():
            used = of_value(amount, BINARY).text
            message += (
                f"Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
            )
    return message


def storage_violation(pod: ObjView, usage: UsageView) -> str:
    """Return the message if the Pod exceeds a limit of its local storage; empty if it does not."""
    uid, spec = pod["metadata"]["uid"], pod["spec"]
    stats, disk = usage.pods.get(uid), usage.disks.get(uid)
    if stats is None or disk is None:
        return ""
    for volume in spec.get("volumes") or ():
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        used = disk.volumes.get(volume["name"])
        if limit and used is not None and 0 < parse(limit).value() < used.used_bytes:
            return f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". '
    total = pod_limits({"spec": spec}).get(EPHEMERAL_STORAGE)
    if total and pod_disk_usage(stats, disk).used_bytes > parse(total).value():
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {total}. "
    sidecars = [each for each in spec.get("initContainers") or () if is_sidecar(each)]
    for container in (*spec["containers"], *sidecars):
        limit = ((container.get("resources") or {}).get("limits") or {}).get(EPHEMERAL_STORAGE)
        measured = stats.containers.get(container["name"])
        if not limit or measured is None or not parse(limit).value():
            continue
        amount = disk.logs.get(measured.name, DiskUsage()).used_bytes
        if not usage.dedicated_image_fs:
            amount += measured.rootfs_bytes or 0
        if amount > parse(limit).value():
            return f'Container {measured.name} exceeded its local ephemeral storage limit "{limit}". '
    return ""


def rejection(pod: ObjView, conditions: Iterable[str]) -> str:
    """Return the message with which a node under pressure rejects a Pod; empty if it admits the Pod."""
    present = sorted(conditions)
    if not present or is_critical(pod):
        return ""
    if present == [MEMORY_PRESSURE]:
        tolerations = pod["spec"].get("tolerations") or ()
        if qos_class(pod) != BEST_EFFORT or any(map(_tolerates_memory_pressure, tolerations)):
            return ""
    return f"The node had condition: [{' '.join(present)}]. "


def _tolerates_memory_pressure(toleration: ObjView) -> bool:
    if toleration.get("effect", "NoSchedule") not in ("", "NoSchedule"):
        return False
    key, exists = toleration.get("key", ""), toleration.get("operator") == "Exists"
    return (not key and exists) or (key == _MEMORY_PRESSURE_TAINT and (exists or not toleration.get("value")))


# -- the manager -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class EvictionManager:
    """Evicts Pods one at a time until the node has enough of every resource."""

    clock: Clock
    thresholds: tuple[Threshold, ...]
    measure: Callable[[], Awaitable[tuple[Measurement, Mapping[str, PodDiskUsage]]]]
    """Measures the node, its Pods, and the disk usage of Pods by uid."""
    active_pods: Callable[[], Sequence[ObjView]]
    """Returns the Pods of the node that have not ended."""
    evict: Callable[[Eviction], Awaitable[None]]
    """Ends a Pod, and records the Event."""
    is_gone: Callable[[str], bool]
    """Returns whether a Pod, by uid, has released its resources."""
    reclaim: Callable[[], Awaitable[None]]
    """Frees disk space: removes ended containers and unused images."""
    warn: Callable[[str, str], None]
    """Records a Warning Event about the Node, from reason and message."""
    transition_seconds: float = 300.0
    """Seconds for which a condition stays true after it was observed last."""
    max_pod_grace_seconds: int = 0
    """The longest grace period of Pods that are evicted for a soft threshold."""
    _observed_at: dict[str, float] = field(default_factory=dict)
    """When each condition was observed last, in monotonic seconds."""
    _met_since: dict[Threshold, float] = field(default_factory=dict)

    def conditions(self) -> frozenset[str]:
        """Return the pressure conditions that are true now."""
        now = self.clock.monotonic()
        return frozenset(kind for kind, at in self._observed_at.items() if now - at < self.transition_seconds)

    async def run(self) -> None:
        while True:
            try:
                evicted = await self.synchronize()
            except Exception as error:  # the next measurement may succeed
                log.warning("cannot check the resources of this node: %s", error)
                evicted = []
            if evicted:
                await self._wait_until_gone(evicted)
            else:
                await self.clock.sleep(_PERIOD)

    async def synchronize(self) -> list[str]:
        """Measure once, and evict at most one Pod for the node, or all that exceed their own limits. Return the uids of
        evicted Pods."""
        measured, disks = await self.measure()
        observations = observe(measured)
        now = self.clock.monotonic()
        met = thresholds_met(self.thresholds, observations)
        self._met_since = {each: self._met_since.get(each, now) for each in met}
        for condition in conditions_of(met):
            self._observed_at[condition] = now
        usage = UsageView(measured.pods, disks, _has_dedicated_image_fs(measured))
        pods = [pod for pod in self.active_pods() if not is_critical(pod)]
        evicted = []
        for pod in pods:
            message = storage_violation(pod, usage)
            if message:
                await self.evict(Eviction(pod, message, _IMMEDIATE_GRACE_SECONDS, disruption=False))
                evicted.append(pod["metadata"]["uid"])
        if evicted:
            return evicted
        due = [each for each, since in self._met_since.items() if now - since >= each.grace_seconds]
        return await self._relieve(
            sorted(due, key=lambda each: each.signal not in _MEMORY_SIGNALS), observations, usage
        )

    async def _relieve(
        self, due: Sequence[Threshold], observations: Mapping[str, Observation], usage: UsageView
    ) -> list[str]:
        """Reclaim the resource of the first threshold. Return the uid of the Pod that was evicted, if any."""
        if not due:
            return []
        threshold = due[0]
        resource = RESOURCE_OF[threshold.signal]
        self.warn("EvictionThresholdMet", f"Attempting to reclaim {resource}")
        if self._can_reclaim(threshold.signal, usage):
            await self.reclaim()
            measured, disks = await self.measure()
            observations = observe(measured)
            usage = UsageView(measured.pods, disks, usage.dedicated_image_fs)
            if not thresholds_met(self.thresholds, observations):
                return []
        for pod in rank((pod for pod in self.active_pods() if not is_critical(pod)), threshold.signal, usage):
            message = eviction_message(resource, pod, usage, due, observations)
            await self.evict(Eviction(pod, message, self._grace_seconds(threshold, pod), disruption=True))
            return [pod["metadata"]["uid"]]
        return []

    def _grace_seconds(self, threshold: Threshold, pod: ObjView) -> int:
        if not threshold.grace_seconds:
            return _IMMEDIATE_GRACE_SECONDS
        own = pod["spec"].get("terminationGracePeriodSeconds")
        return self.max_pod_grace_seconds if own is None else min(self.max_pod_grace_seconds, own)

    def _can_reclaim(self, signal: str, usage: UsageView) -> bool:
        return signal in (_IMAGE_SIGNALS if usage.dedicated_image_fs else _DISK_SIGNALS)

    async def _wait_until_gone(self, uids: Sequence[str]) -> None:
        deadline = self.clock.monotonic() + _CLEANUP_TIMEOUT
        while self.clock.monotonic() < deadline:
            await self.clock.sleep(_CLEANUP_POLL)
            if all(map(self.is_gone, uids)):
                return


def _has_dedicated_image_fs(measured: Measurement) -> bool:
    node_fs, image_fs = measured.node.node_fs, measured.node.image_fs
    return node_fs is not None and image_fs is not None and node_fs.device != image_fs.device
