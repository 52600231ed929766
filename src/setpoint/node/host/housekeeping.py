"""The periodic work of a real node beside its Pods: eviction, garbage collection, and removal of what is left over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from setpoint.client import Client, Unreachable
from setpoint.client.resources import builtin
from setpoint.meta.clock import Clock
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import ObjView
from setpoint.node.cri.client import CriClient
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.cgroup_files import CgroupError
from setpoint.node.host.cgroups import CgroupManager
from setpoint.node.host.cri_runtime import CriRuntime
from setpoint.node.host.disk_usage import DiskUsageCollector, PodDiskUsage
from setpoint.node.host.eviction import EVICTED, Eviction, EvictionManager
from setpoint.node.host.eviction_signals import parse_soft_thresholds, parse_thresholds
from setpoint.node.host.image_gc import GarbageCollector
from setpoint.node.host.machine import read_filesystem
from setpoint.node.host.node_config import NodeConfig
from setpoint.node.host.stats import Measurement, StatsCollector
from setpoint.node.host.volumes.manager import VolumeManager
from setpoint.node.node_state import NodeState
from setpoint.node.pod_sync import PodSync
from setpoint.node.runtime.images import parse_reference
from setpoint.reconcile import EventRecorder

log = logging.getLogger("setpoint.node")

_VOLUMES = builtin("persistentvolumes")
_ORPHAN_PERIOD: Final = 30.0
"""Seconds between searches for Pods that are left over although they do not exist any more."""
_QOS_PERIOD: Final = 60.0
_LOCAL_VOLUMES_PERIOD: Final = 10.0
_MAX_MEASUREMENT_AGE: Final = 5.0


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts of a running node that housekeeping works on."""

    config: NodeConfig
    node: NodeState
    client: Client
    cri: CriClient
    runtime: CriRuntime
    volumes: VolumeManager
    cgroups: CgroupManager
    sync: PodSync
    stats: StatsCollector
    disks: DiskUsageCollector
    events: EventRecorder
    pool: BlockingPool
    clock: Clock
    image_fs: Path
    """A directory of the file system of the images."""
    images_changed: Callable[[], None]
    """Called when images were removed."""


class Housekeeping:
    """Runs the periodic work of one node."""

    def __init__(self, parts: NodeParts) -> None:
        config = parts.config
        self._parts = parts
        self.collector = GarbageCollector(
            config.name,
            parts.cri,
            parts.clock,
            lambda: parts.pool.run(read_filesystem, parts.image_fs),
            lambda: parts.sync.workers,
            self._warn,
            config.pod_infra_container_image,
            config.image_gc_high_threshold,
            config.image_gc_low_threshold,
            config.minimum_image_ttl_duration,
            parts.images_changed,
            self._image_volumes,
        )
        hard = parse_thresholds(config.eviction_hard)
        soft = parse_soft_thresholds(config.eviction_soft, config.eviction_soft_grace_period)
        self.eviction = EvictionManager(
            parts.clock,
            (*hard, *soft),
            self._measure,
            self._active_pods,
            self._evict,
            self._is_gone,
            self.collector.reclaim,
            self._warn,
            config.eviction_pressure_transition_period,
            config.eviction_max_pod_grace_period,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.eviction.run())
            tasks.create_task(self.collector.run())
            tasks.create_task(self._repeat(_ORPHAN_PERIOD, self._remove_orphans))
            tasks.create_task(self._repeat(_QOS_PERIOD, self._update_cgroups))
            tasks.create_task(self._repeat(_LOCAL_VOLUMES_PERIOD, self._remove_local_volumes))

    async def _repeat(self, period: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except (ApiError, Unreachable, CgroupError, OSError) as error:
                log.warning("the node could not be tidied up: %s", error)
            await self._parts.clock.sleep(period)

    # -- eviction ------------------------------------------------------------------------------------------------------

    async def _measure(self) -> tuple[Measurement, Mapping[str, PodDiskUsage]]:
        parts = self._parts
        await parts.disks.measure(self._active_pods())
        return await parts.stats.measure(_MAX_MEASUREMENT_AGE), parts.disks.pods

    def _active_pods(self) -> Sequence[ObjView]:
        return [worker.pod for worker in self._parts.sync.workers.values() if not worker.finished]

    async def _evict(self, eviction: Eviction) -> None:
        worker = self._parts.sync.workers.get(eviction.pod["metadata"]["uid"])
        if worker is not None:
            worker.evict(EVICTED, eviction.message, eviction.grace_seconds, disruption=eviction.disruption)
            self._parts.sync.enqueue(worker.uid)

    def _is_gone(self, uid: str) -> bool:
        worker = self._parts.sync.workers.get(uid)
        return worker is None or worker.finished

    def _image_volumes(self) -> set[str]:
        """Return the names of the images that Pods mount as volumes."""
        pods = [worker.pod for worker in self._parts.sync.workers.values() if not worker.finished]
        images = [each.get("image") for pod in pods for each in pod["spec"].get("volumes") or ()]
        found = [parse_reference(each.get("reference") or "") for each in images if each is not None]
        return {each.name for each in found if each is not None}

    def _warn(self, reason: str, message: str) -> None:
        node = self._parts.node.object
        if node is not None:
            self._parts.events.warning(node, reason, message, host=self._parts.node.name)

    # -- what is left over ---------------------------------------------------------------------------------------------

    async def _remove_orphans(self) -> None:
        """Remove Pods that were deleted while the agent was away, and cgroups without a Pod."""
        parts = self._parts
        orphans = await parts.runtime.orphans(parts.sync.workers)
        # One that appeared meanwhile is not an orphan.
        for uid in orphans - set(parts.sync.workers):
            log.info("removing Pod %s, which does not exist any more", uid)
            await parts.runtime.remove_orphan(uid)
        for uid in await parts.cgroups.pods() - parts.runtime.state.uids() - set(parts.sync.workers):
            await parts.cgroups.remove_pod(uid)

    async def _update_cgroups(self) -> None:
        await self._parts.cgroups.update_qos(self._active_pods())

    async def _remove_local_volumes(self) -> None:
        """Remove the directories of provisioned volumes that were deleted."""
        parts = self._parts
        if await parts.volumes.unused_local_volumes():
            await parts.volumes.reconcile_local_volumes((await parts.client.list(_VOLUMES)).items)
