"""A node is lost with all its Pods: `python bench/lost_node.py [--pods 50] [--store sqlite|memory]`.

A whole cluster in this process, as `setpoint up` runs it, but with less patience: a node that says nothing for four
seconds is taken for lost, and its Pods leave after one more. All Pods of a Deployment are on one node; it is cut off.
Measured are the time until as many run on the other nodes, and how long the API took meanwhile for a read and for a
change of another object, each twenty times a second."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.client.resources import builtin
from setpoint.cluster.apiserver import apiserver
from setpoint.cluster.components import ComponentOptions, Components
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.controllers.options import ControllerOptions
from setpoint.meta.objects import Obj
from setpoint.node.options import FleetOptions, NodeTemplate

PODS, NODES, MAPS = builtin("pods"), builtin("nodes"), builtin("configmaps")
LOST, OTHERS = "node-1", ("node-2", "node-3", "node-4")
UNREACHABLE = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,
}


def deployment(replicas: int) -> Obj:
    spec = {"containers": [{"name": "c", "image": "nginx"}], "tolerations": [UNREACHABLE]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    }


async def running(client: Client, away: bool) -> int:
    pods = (await client.list(PODS, "default")).items
    return sum(
        pod["status"].get("phase") == "Running" and (pod["spec"]["nodeName"] != LOST) == away
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    )


async def until(client: Client, count: int, away: bool) -> None:
    async with asyncio.timeout(120):
        while True:
            if await running(client, away) >= count:
                return
            await asyncio.sleep(0.1)


async def ask(client: Client, reads: list[float], writes: list[float]) -> None:
    number = 0
    while True:
        number += 1
        began = time.perf_counter()
        await client.get(MAPS, "asked", "default")
        reads.append(time.perf_counter() - began)
        began = time.perf_counter()
        await client.patch(MAPS, "asked", {"data": {"number": str(number)}}, "default")
        writes.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)


async def story(client: Client, pods: int) -> None:
    for name in OTHERS:
        await client.patch(NODES, name, {"spec": {"unschedulable": True}})
    await client.create(deployment(pods))
    await until(client, pods, away=False)
    for name in OTHERS:
        await client.patch(NODES, name, {"spec": {"unschedulable": None}})
    meta = {"name": "asked", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    reads: list[float] = []
    writes: list[float] = []
    asking = asyncio.ensure_future(ask(client, reads, writes))
    began = time.perf_counter()
    await client.patch(NODES, LOST, {"metadata": {"annotations": {"simulate.setpoint.dev/state": "partitioned"}}})
    await until(client, pods, away=True)
    print(f"{pods} Pods run elsewhere {time.perf_counter() - began:.1f} s after their node was cut off")
    asking.cancel()
    for what, times in (("reads", reads), ("changes", writes)):
        times.sort()
        late = times[len(times) * 99 // 100]
        print(f"{what:8} meanwhile, {len(times)}: median {median(times) * 1e3:.1f} ms, p99 {late * 1e3:.1f} ms")


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ApiServerConfig(Path(directory), port=0, store=options.store)
        patience = ControllerOptions(node_monitor_period=0.5, node_monitor_grace_period=4.0)
        fleet = FleetOptions(4, NodeTemplate(lease_seconds=4))
        async with apiserver(config, None) as server:
            parts = ComponentOptions(nodes=4, controller_options=patience, fleet=fleet)
            async with (
                Components(server.api, server.api.resources.clock, server.api.resources.ids, parts),
                InProcess(server.api.handle) as entrance,
            ):
                transport = SharingTransport(entrance, server.loopback_token)
                await story(Client(transport, server.api.resources.clock, user_agent="bench"), options.pods)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=50)
    parser.add_argument("--store", default="sqlite")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(parser.parse_args()))
