"""What the nodes of this process use: sampled when somebody asks, and not more often than a metrics server would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from setpoint.apiserver.metrics_api.source import PodSample, Sample, Used
from setpoint.meta.clock import Clock
from setpoint.meta.quantity import NANO
from setpoint.node.annotations import RUNNING
from setpoint.node.fleet import Fleet
from setpoint.node.kubelet_api.stats import SYSTEM_CPU_NANO, SYSTEM_MEMORY
from setpoint.node.runtime.interface import Usage

RESOLUTION = 15.0
_LEAST_WINDOW = 10.0
"""Containers that have not run for so long are too young to be measured, and their Pods with them."""
_SYSTEM = Used(SYSTEM_CPU_NANO, SYSTEM_MEMORY)
_AT_ONCE = 500


class FleetUsage:
    """A UsageSource over the fleets that are connected."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._fleets: list[Fleet] = []
        self._last: Sample | None = None
        self._taken_at = 0.0
        self._taking = asyncio.Lock()

    def connect(self, fleet: Fleet) -> None:
        self._fleets.append(fleet)

    def disconnect(self, fleet: Fleet) -> None:
        self._fleets.remove(fleet)
        self._last = None

    async def sample(self) -> Sample:
        async with self._taking:
            if self._last is None or self._clock.monotonic() - self._taken_at >= RESOLUTION:
                self._taken_at = self._clock.monotonic()
                self._last = await self._take()
            return self._last

    async def _take(self) -> Sample:
        now = self._clock.now()
        nodes: dict[str, Used] = {}
        pods: dict[str, PodSample] = {}
        for fleet in self._fleets:
            nodes |= {name: _SYSTEM for name, node in fleet.nodes.items() if node.state == RUNNING}
            for index, worker in enumerate(tuple(fleet.workers())):
                if index % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)  # many Pods take a while: others have their turn
                node = nodes.get(worker.node.name)
                usage = fleet.runtime.usage(worker.uid) if node is not None else {}
                if not usage or node is None:
                    continue
                cpu = sum(each.cpu_nano for each in usage.values())
                memory = sum(each.memory_bytes for each in usage.values())
                nodes[worker.node.name] = Used(node.cpu_nano + cpu, node.memory_bytes + memory)
                window = _window(usage.values())
                if window >= _LEAST_WINDOW:
                    containers = {name: Used(each.cpu_nano, each.memory_bytes) for name, each in usage.items()}
                    pods[worker.uid] = PodSample(min(window, RESOLUTION), containers)
        return Sample(now, RESOLUTION, nodes, pods)


def _window(usage: Iterable[Usage]) -> float:
    """How long the youngest of the running containers has been there."""
    return min(each.cpu_seconds * NANO / each.cpu_nano if each.cpu_nano else RESOLUTION for each in usage)
