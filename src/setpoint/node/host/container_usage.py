"""Samples the resource usage of containers, as long as it is asked for."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.host.runtime_labels import NODE, POD_UID
from setpoint.node.runtime.interface import Usage

_PERIOD: Final = 10.0
_ASKED_WITHIN: Final = 60.0
_TIMEOUT: Final = 60.0


class _Sample(NamedTuple):
    uid: str
    name: str
    at: int
    """The time of the sample in nanoseconds."""
    cpu_nano_seconds: int
    usage: Usage


class UsageSampler:
    """Caches the usage of all containers of a node. Nothing is sampled while nothing is asked."""

    def __init__(self, client: CriClient, node_name: str, clock: Clock) -> None:
        self._client = client
        self._node_name = node_name
        self._clock = clock
        self._samples: dict[str, _Sample] = {}
        """The last samples by the id of the container."""
        self._asked_at = float("-inf")
        self._asked = asyncio.Event()

    def usage(self, uid: str) -> dict[str, Usage]:
        """Return the usage of the running containers of a Pod by name, as sampled last."""
        self._asked_at = self._clock.monotonic()
        self._asked.set()
        return {each.name: each.usage for each in self._samples.values() if each.uid == uid}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            if self._clock.monotonic() - self._asked_at > _ASKED_WITHIN:
                self._samples = {}  # too old to be an answer
                self._asked.clear()
                await self._asked.wait()
            await self.sample()
            await self._clock.sleep(_PERIOD)

    async def sample(self) -> None:
        """Sample all containers once; the samples stay as they are if the runtime does not answer."""
        request = {"filter": {"label_selector": {NODE: self._node_name}}}
        try:
            answer = await self._client.call("ListContainerStats", request, timeout=_TIMEOUT)
        except CriError:
            return
        self._samples = {each.attributes.id: self._sample(each) for each in answer.stats}

    def _sample(self, stats: Any) -> _Sample:
        attributes, cpu, memory = stats.attributes, stats.cpu, stats.memory
        total, before = int(cpu.usage_core_nano_seconds.value), self._samples.get(attributes.id)
        rate = int(cpu.usage_nano_cores.value)
        if not rate and before is not None and cpu.timestamp > before.at and total >= before.cpu_nano_seconds:
            rate = (total - before.cpu_nano_seconds) * 1_000_000_000 // (cpu.timestamp - before.at)
        usage = Usage(rate, int(memory.working_set_bytes.value), total / 1e9)
        return _Sample(attributes.labels.get(POD_UID, ""), attributes.metadata.name, cpu.timestamp, total, usage)
