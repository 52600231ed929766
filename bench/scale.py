"""A large cluster: `python bench/scale.py [--nodes 5000] [--pods 150000] [--seconds 60] [--set 1000]`.

Builds it up in Deployments of `--set` Pods, some at a time, in one process with a durable store, and tells how fast
and with how much memory. Then, for so many seconds, changes 20 Pods a second and reads as many, and deletes two a
second: how long the changes and the reads take, and how long each successor takes from its creation until it is
Running. At last all Pods are listed once."""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path

import uvloop
from loops import NAMESPACE, PODS, deployment, resident_now

from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.cluster.allinone import cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer

SETS_AT_ONCE = 3
CHANGES, DELETIONS = 20, 2


class Starts:
    """When each Pod was seen first, and when Running."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self._more = asyncio.Event()

    def changed(self, _: Obj | None, new: Obj | None) -> None:
        if new is None or new["metadata"]["namespace"] != NAMESPACE:
            return
        uid = new["metadata"]["uid"]
        self.seen.setdefault(uid, time.perf_counter())
        if uid not in self.running and new["status"].get("phase") == "Running":
            self.running[uid] = time.perf_counter()
            self._more.set()

    async def reach(self, count: int) -> None:
        while len(self.running) < count:
            self._more.clear()
            await self._more.wait()


def told(what: str, times: list[float]) -> None:
    times.sort()
    middle, late = times[len(times) // 2], times[len(times) * 99 // 100]
    print(
        f"{what:24} {len(times):6}: median {middle * 1e3:8.1f} ms, p99 {late * 1e3:8.1f} ms, "
        f"most {times[-1] * 1e3:8.1f} ms",
        flush=True,
    )


async def build(client: Client, starts: Starts, pods: int, each: int) -> None:
    began, cpu, base = time.perf_counter(), time.process_time(), resident_now()
    asked = 0
    while asked < pods:
        await client.create(deployment(f"set-{asked // each}", min(each, pods - asked)))
        asked = min(asked + each, pods)
        await starts.reach(asked - (SETS_AT_ONCE - 1) * each)
        if asked % (10 * each) == 0:
            there = len(starts.running)
            took, used = time.perf_counter() - began, time.process_time() - cpu
            print(
                f"{there:7} Running after {took:7.1f} s, {used / max(there, 1) * 1e3:5.2f} ms of CPU each, "
                f"{resident_now() >> 20} MiB",
                flush=True,
            )
    await starts.reach(pods)
    took, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"{pods} Pods Running after {took:.0f} s: {pods / took:.0f} a second, {used / pods * 1e3:.2f} ms of CPU each")
    print(f"resident for each Pod: {(resident_now() - base) / pods / 1024:.1f} KiB, with its events", flush=True)


async def change(client: Client, pods: Informer[Obj], starts: Starts, seconds: int) -> None:
    names = [pod["metadata"]["name"] for pod in pods.items.values() if pod["metadata"]["namespace"] == NAMESPACE]
    known = set(starts.seen)
    writes: list[float] = []
    reads: list[float] = []

    async def one(number: int) -> None:
        name, began = names[number * 7 % len(names)], time.perf_counter()
        if number % (CHANGES // DELETIONS) == 0:
            await client.delete(PODS, name, NAMESPACE)
        else:
            change = {"metadata": {"annotations": {"changed": str(number)}}}
            await client.patch(PODS, name, change, NAMESPACE)
        written = time.perf_counter()
        await client.get(PODS, names[(number * 7 + 1) % len(names)], NAMESPACE)
        writes.append(written - began)
        reads.append(time.perf_counter() - written)

    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(seconds * CHANGES):
            await asyncio.sleep(max(0.0, began + number / CHANGES - time.perf_counter()))
            tasks.create_task(one(number))
    took, used = time.perf_counter() - began, time.process_time() - cpu
    told("changes", writes)
    told("reads", reads)
    await asyncio.sleep(5)
    successors = [uid for uid in starts.running if uid not in known]
    told("Pods started", [starts.running[uid] - starts.seen[uid] for uid in successors])
    print(f"CPU meanwhile: {used / took * 100:.0f} % of a core; {len(starts.seen) - len(starts.running)} not Running")


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ApiServerConfig(Path(directory), port=0)
        began = time.perf_counter()
        async with cluster(config, nodes=options.nodes) as running:
            print(f"{options.nodes} nodes ready after {time.perf_counter() - began:.1f} s, {resident_now() >> 20} MiB")
            server = running.apiserver
            async with InProcess(server.api.handle) as entrance:
                client = Client(
                    SharingTransport(entrance, server.loopback_token), server.api.resources.clock, user_agent="bench"
                )
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
                pods, starts = Informer[Obj](client, PODS, server.api.resources.clock), Starts()
                following = asyncio.ensure_future(pods.run())
                await pods.synced.wait()
                pods.add_handler(starts.changed)
                await build(client, starts, options.pods, options.set)
                await change(client, pods, starts, options.seconds)
                began = time.perf_counter()
                page = await client.list_page(PODS, NAMESPACE)
                print(f"list of {len(page.items)} Pods: {time.perf_counter() - began:.2f} s")
                print(f"resident at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB")
                following.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--set", type=int, default=1000)
    uvloop.run(main(parser.parse_args()))
