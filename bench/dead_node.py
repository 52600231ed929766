"""A node dies: `python bench/dead_node.py [--pods 50] [--nodes 20] [--requests 20]`.

So many Pods run on one node of a cluster in one process, with a durable store; they tolerate a node that is not there
for no time at all. Then the node is switched off. Measured are, from the moment in which it is tainted (some 50 s
later: it is heard of no more for the grace period) until each of its Pods has a successor that is Running: how long
that takes, and how long a change and a read of others take meanwhile, so many of each a second."""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from loops import NAMESPACE, PODS, deployment
from scale import told

from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.client.resources import builtin
from setpoint.cluster.allinone import cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.reconcile import Informer

Obj = dict[str, Any]
NODES, MAPS = builtin("nodes"), builtin("configmaps")
DEAD = "node-1"
AT_ONCE = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    for what in ("unreachable", "not-ready")
]


def there(pods: Informer, node: str = "") -> list[Obj]:
    """Those of the benchmark that run, on this node or on any."""
    return [
        pod
        for pod in pods.items.values()
        if pod["metadata"]["namespace"] == NAMESPACE
        and pod["status"].get("phase") == "Running"
        and not pod["metadata"].get("deletionTimestamp")
        and node in ("", pod["spec"].get("nodeName"))
    ]


async def until(informer: Informer, holds: Callable[[], bool]) -> None:
    """Looks again with every change."""
    changed = asyncio.Event()

    def look(_: Obj | None, __: Obj | None) -> None:
        changed.set()

    informer.add_handler(look)
    while not holds():
        changed.clear()
        await changed.wait()
    informer.remove_handler(look)


async def requests(client: Client, each: int, over: asyncio.Event) -> None:
    """As another client makes them, all the while."""
    writes: list[float] = []
    reads: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        await client.patch(MAPS, "bench", {"data": {"number": str(number)}}, NAMESPACE)
        written = time.perf_counter()
        await client.list_page(NODES)
        writes.append(written - began)
        reads.append(time.perf_counter() - written)

    number = 0
    async with asyncio.TaskGroup() as tasks:
        while not over.is_set():
            tasks.create_task(one(number))
            number += 1
            await asyncio.sleep(1 / each)
    told("changes", writes)
    told("lists of all nodes", reads)


async def bench(client: Client, pods: Informer, nodes: Informer, options: argparse.Namespace) -> None:
    made = deployment("web", options.pods)
    spec = made["spec"]["template"]["spec"]
    spec |= {"tolerations": AT_ONCE, "nodeSelector": {"kubernetes.io/hostname": DEAD}}
    await client.create(made)
    meta = {"name": "bench", "namespace": NAMESPACE}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    await until(pods, lambda: len(there(pods, DEAD)) == options.pods)
    # Their successors may run anywhere: of the Pods that there are, none is replaced for it.
    sets = (await client.list(builtin("replicasets", "apps"), NAMESPACE)).items
    await client.patch(builtin("deployments", "apps"), "web", {"spec": {"paused": True}}, NAMESPACE)
    free = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    await client.patch(builtin("replicasets", "apps"), sets[0]["metadata"]["name"], free, NAMESPACE)
    print(f"{options.pods} Pods on {DEAD}; it is switched off, and the controllers notice in time ...", flush=True)
    off = {"metadata": {"annotations": {"simulate.setpoint.dev/state": "stopped"}}}
    await client.patch(NODES, DEAD, off)

    def is_tainted() -> bool:
        return any(taint["effect"] == "NoExecute" for taint in nodes.items[DEAD]["spec"].get("taints", ()))

    await until(nodes, is_tainted)
    began, cpu, over = time.perf_counter(), time.process_time(), asyncio.Event()
    load = asyncio.ensure_future(requests(client, options.requests, over))
    await until(pods, lambda: len([pod for pod in there(pods) if pod["spec"]["nodeName"] != DEAD]) == options.pods)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    await asyncio.sleep(1)
    over.set()
    await load
    print(f"{options.pods} successors Running after {took:.2f} s, {used:.2f} s of CPU")


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with cluster(ApiServerConfig(Path(directory), port=0), nodes=options.nodes) as running:
            server = running.apiserver
            async with InProcess(server.api.handle) as entrance:
                client = Client(SharingTransport(entrance, server.loopback_token), server.api.clock, user_agent="bench")
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
                pods, nodes = (Informer(client, each, server.api.clock) for each in (PODS, NODES))
                following = [asyncio.ensure_future(each.run()) for each in (pods, nodes)]
                await asyncio.gather(pods.synced.wait(), nodes.synced.wait())
                await bench(client, pods, nodes, options)
                print(f"resident at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
                for task in following:
                    task.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--requests", type=int, default=20)
    uvloop.run(main(parser.parse_args()))
