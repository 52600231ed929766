"""What a test waits for: `python bench/testing.py [RUNS]`.

Milliseconds, medians and the best: a fresh cluster of three nodes, the first in its process (modules are loaded) and
further ones; a fork of a cluster with so many Pods until it is ready; a Deployment of ten Pods created and settled, and
an hour at rest; a case of `explore`; a live cluster over HTTPS. CPU is the process's own: it says more on a busy
machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORKED = (0, 100, 1000)
FIRST = """
import time, asyncio
from setpoint.testing import virtual_cluster, run_virtual
import setpoint.testing.cluster
async def main():
    begun, used = time.perf_counter(), time.process_time()
    async with virtual_cluster():
        print(time.perf_counter() - begun, time.process_time() - used)
run_virtual(main)
"""


class Times:
    def __init__(self) -> None:
        self.took: list[float] = []
        self.used: list[float] = []

    def add(self, took: float, used: float) -> None:
        self.took.append(took)
        self.used.append(used)

    def show(self, what: str) -> None:
        for numbers in (self.took, self.used):
            numbers.sort()
        middle = len(self.took) // 2
        print(
            f"{what:<44} median {1000 * self.took[middle]:8.1f} ms, best {1000 * self.took[0]:8.1f} ms; "
            f"CPU median {1000 * self.used[middle]:8.1f} ms, best {1000 * self.used[0]:8.1f} ms"
        )


class Stopwatch:
    def __init__(self, times: Times) -> None:
        self._times = times

    def __enter__(self) -> None:
        self._begun, self._used = time.perf_counter(), time.process_time()

    def __exit__(self, *error: object) -> None:
        self._times.add(time.perf_counter() - self._begun, time.process_time() - self._used)


def deployment(replicas: int) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


async def entered(cluster: AbstractAsyncContextManager[Any], times: Times) -> None:
    with Stopwatch(times):
        await cluster.__aenter__()
    await cluster.__aexit__(None, None, None)


def first(runs: int) -> None:
    times = Times()
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
        took, used = map(float, done.stdout.split())
        times.add(took, used)
    times.show("the first cluster after import")


def further(runs: int) -> None:
    from setpoint.testing import run_virtual, virtual_cluster

    times = Times()
    for _ in range(runs + 1):
        run_virtual(lambda: entered(virtual_cluster(), times))
    del times.took[0], times.used[0]
    times.show("a further cluster")


def forks(runs: int, pods: int) -> None:
    from setpoint.testing import run_virtual, virtual_cluster

    times = Times()

    async def main() -> None:
        async with virtual_cluster(nodes=max(3, pods // 100)) as cluster:
            if pods:
                await cluster.client.create(deployment(pods))
            await cluster.settle()
            for _ in range(runs):
                await entered(cluster.fork(), times)

    run_virtual(main)
    times.show(f"a fork of a cluster with {pods} Pods")


def settling(runs: int) -> None:
    from setpoint.testing import run_virtual, virtual_cluster

    settle, rest = Times(), Times()

    async def main() -> None:
        async with virtual_cluster() as cluster:
            with Stopwatch(settle):
                await cluster.client.create(deployment(10))
                await cluster.settle()
            with Stopwatch(rest):
                await cluster.at_rest("1h")

    for _ in range(runs):
        run_virtual(main)
    settle.show("a Deployment of 10 Pods, settled")
    rest.show("an hour at rest")


@dataclass
class CopySpec:
    text: str = ""


def exploring(runs: int, *, whole: bool) -> None:
    """A case of `explore`: an operator that copies an object dies after its first write."""
    from setpoint.sdk import Controller, Kind, Operator
    from setpoint.testing import Exploration, Plan, VirtualCluster

    kind, config_map = Kind("example.com/v1", "Copy", spec=CopySpec), Kind("v1", "ConfigMap")

    async def copy(ctx: Any, obj: Any) -> None:
        await ctx.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": obj.name}, "data": {"a": "b"}})

    async def scenario(cluster: VirtualCluster) -> None:
        meta = {"name": "one", "namespace": "default"}
        await cluster.client.create({"apiVersion": "example.com/v1", "kind": "Copy", "metadata": meta, "spec": {}})

    options: dict[str, Any] = {} if whole else {"controllers": (), "scheduler": False}
    exploration = Exploration(Operator("copier", Controller(kind, copy, owns=(config_map,))), scenario, **options)
    times, plan = Times(), Plan.parse("crash-after:1")
    exploration.under(plan)
    for _ in range(runs):
        with Stopwatch(times):
            exploration.under(plan)
    times.show(f"a case of explore, {'all' if whole else 'no'} controllers")


def live(runs: int) -> None:
    from setpoint.testing import live_cluster

    times = Times()
    for number in range(runs):
        with tempfile.TemporaryDirectory() as directory:
            cluster = live_cluster(Path(directory) / str(number))
            with Stopwatch(times):
                cluster.__enter__()
            cluster.__exit__(None, None, None)
    times.show("a live cluster, over HTTPS")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    steps: list[Callable[[], None]] = [lambda: first(runs), lambda: further(runs)]
    steps += [lambda pods=pods: forks(runs, pods) for pods in FORKED]  # type: ignore[misc]
    steps += [lambda: settling(runs), lambda: exploring(runs, whole=True), lambda: exploring(runs, whole=False)]
    steps += [lambda: live(runs)]
    for step in steps:
        step()


if __name__ == "__main__":
    main()
