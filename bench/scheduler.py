"""Pods placed per second: `python bench/scheduler.py [--nodes 5000] [--pods 10000] [plain spread apart ...]`.

Each case is measured twice: the decisions alone, in memory; and from the moment at which the scheduler begins on Pods
that wait until the last of them is bound, through the whole API server in the same process, on the memory store, with
RBAC, admission and events on.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import Any

import uvloop

from setpoint.client.resources import builtin
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedCluster, EmbeddedOptions, embedded_cluster
from setpoint.meta.objects import Obj
from setpoint.scheduler.cluster_events import QueueingHints
from setpoint.scheduler.config import Configuration
from setpoint.scheduler.engine import Engine
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.system import RandomIds, SystemClock

PODS, NODES = builtin("pods"), builtin("nodes")
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APP = {"matchLabels": {"app": "bench"}}
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def _spread(action: str) -> Any:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": action, "labelSelector": APP}
    return {"topologySpreadConstraints": [constraint]}


CASES: dict[str, Obj] = {
    "plain": {},
    "spread": _spread("DoNotSchedule"),
    "prefer-spread": _spread("ScheduleAnyway"),
    "apart": {"affinity": {"podAntiAffinity": {REQUIRED: [{"labelSelector": APP, "topologyKey": HOSTNAME}]}}},
    "prefer-apart": {
        "affinity": {
            "podAntiAffinity": {
                PREFERRED: [{"weight": 10, "podAffinityTerm": {"labelSelector": APP, "topologyKey": HOSTNAME}}]
            }
        }
    },
}
"""`apart` places one Pod a node, so at most as many as there are nodes."""


def a_node(number: int) -> Any:
    name = f"node-{number:05}"
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: f"zone-{number % 3}"}},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def a_pod(number: int, spec: Obj) -> Any:
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}},
    }
    meta = {"name": f"pod-{number:06}", "namespace": "default", "labels": {"app": "bench"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def in_memory(nodes: int, pods: int, spec: Obj) -> float:
    engine = Engine(Configuration(), Listers(), Nominations(lambda key: None), RandomIds(1), QueueingHints())
    for number in range(nodes):
        engine.snapshot.put_node(a_node(number))
    waiting = []
    for number in range(pods):
        pod = a_pod(number, {"schedulerName": "default-scheduler", **spec})
        pod["metadata"]["uid"] = str(number)
        waiting.append(pod)
    gc.collect()
    began = time.perf_counter()
    for pod in waiting:
        cycle, choice = engine.decide(pod)
        engine.assume(cycle, choice.node)
    return pods / (time.perf_counter() - began)


async def through_the_api(nodes: int, pods: int, spec: Obj) -> tuple[float, float]:
    """Pods a second, and seconds of CPU for each."""
    parts = ComponentOptions(nodes=0, controllers=["serviceaccount-controller"], scheduler=False)
    async with embedded_cluster(SystemClock(), RandomIds(1), EmbeddedOptions(parts)) as cluster:
        await _many(cluster, [a_node(number) for number in range(nodes)])
        for number in range(nodes):
            await cluster.client.patch(NODES, f"node-{number:05}", {"spec": {"taints": None}})
        await _many(cluster, [a_pod(number, spec) for number in range(pods)])
        bound, done = set[str](), asyncio.Event()

        async def watch() -> None:
            # Those that are bound, and no more of them than their names: looking must not cost what is looked at.
            where: Obj = {"field_selector": "spec.nodeName!=", "metadata_only": True, "bookmarks": False}
            async with cluster.client.watch(PODS, "default", resource_version="0", **where) as stream:
                async for _, pod in stream:
                    bound.add(pod["metadata"]["name"])
                    if len(bound) == pods:
                        done.set()

        async with asyncio.TaskGroup() as tasks:
            watcher = tasks.create_task(watch())
            await asyncio.sleep(1)
            # As a server of its own process does when it is ready.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 50, 1_000)
            await cluster.components.start(cluster.components.scheduler)
            began, cpu = time.perf_counter(), time.process_time()
            await done.wait()
            elapsed, used = time.perf_counter() - began, time.process_time() - cpu
            watcher.cancel()
    gc.unfreeze()
    return pods / elapsed, used / pods


async def _many(cluster: EmbeddedCluster, objects: list[Obj]) -> None:
    waiting = iter(objects)

    async def create() -> None:
        for obj in waiting:
            await cluster.client.create(obj)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(64):
            tasks.create_task(create())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("cases", nargs="*", default=["plain", "spread", "apart"])
    options = parser.parse_args()
    print(f"{options.nodes:,} nodes, {options.pods:,} Pods     decisions alone      through the API")
    for case in options.cases:
        spec = CASES[case]
        pods = min(options.pods, options.nodes) if case == "apart" else options.pods
        alone = in_memory(options.nodes, pods, spec)
        print(f"{case:16}{pods:8,} Pods   {alone:12,.0f} /s", end="", flush=True)
        if options.memory_only:
            print()
        else:
            rate, cpu = uvloop.run(through_the_api(options.nodes, pods, spec))
            print(f"     {rate:12,.0f} /s   {cpu * 1e6:8,.0f} us of CPU each")


if __name__ == "__main__":
    main()
