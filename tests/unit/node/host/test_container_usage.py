from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from stopped_clock import StoppedClock, settle

from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.cri.messages import METHODS
from setpoint.node.host.container_usage import UsageSampler
from setpoint.tasks import TaskRegistry
from setpoint.wire.grpc import Code


class StatsClient:
    """A container runtime with one container, which uses half a core."""

    def __init__(self, clock: StoppedClock) -> None:
        self.clock = clock
        self.count = 0
        self.error: CriError | None = None

    async def call(self, method: str, request: Mapping[str, Any], *, timeout: float) -> Any:
        assert method == "ListContainerStats"
        assert request == {"filter": {"label_selector": {"setpoint.dev/node": "node-1"}}}
        self.count += 1
        if self.error is not None:
            raise self.error
        now = int(self.clock.monotonic() * 1e9) + 1
        labels = {"io.kubernetes.pod.uid": "uid"}
        stats = {
            "attributes": {"id": "c", "metadata": {"name": "main"}, "labels": labels},
            "cpu": {"timestamp": now, "usage_core_nano_seconds": {"value": now // 2}},
            "memory": {"timestamp": now, "working_set_bytes": {"value": 1000}},
        }
        return METHODS[method].response(stats=[stats])


async def test_usage_is_sampled_while_it_is_asked_for() -> None:
    clock, tasks = StoppedClock(), TaskRegistry()
    client = StatsClient(clock)
    sampler = UsageSampler(cast(CriClient, client), "node-1", clock)
    tasks.start(sampler.run())
    await clock.advance(100)
    assert client.count == 0 and sampler.usage("uid") == {}
    await settle()
    first = sampler.usage("uid")["main"]
    assert (first.cpu_nano, first.memory_bytes, first.cpu_seconds) == (0, 1000, 50.0)
    await clock.advance(10)
    second = sampler.usage("uid")["main"]
    assert second.cpu_nano == 500_000_000 and second.cpu_seconds == 55.0
    assert sampler.usage("another") == {}
    client.error = CriError(Code.UNAVAILABLE, "gone")
    await clock.advance(10)
    assert sampler.usage("uid") == {"main": second}
    await clock.advance(80)
    assert client.count == 9
    client.error = None
    assert sampler.usage("uid") == {}
    await settle()
    assert client.count == 10
    await tasks.stop()
