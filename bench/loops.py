"""The loops together: `python bench/loops.py [--pods 2000] [--nodes 1000] [--store sqlite|memory] [--sets 1]
[--churn SECONDS] [--turnover RATE] [--no-heartbeats] [--profile FILE]`.

A whole cluster in this process, as `setpoint up` runs it. Measured are a Deployment (or several, `--sets`) from its
POST until all of its Pods are bound and until all are Running, with the CPU and the memory that each Pod cost, and how
long it takes until a deleted Pod has a successor that is bound to a node. `--churn` then changes 20 Pods a second for
so long, and says how long the changes and as many reads took. `--turnover` deletes so many Pods a second for a minute
(they are replaced). Last comes how long after their time stamps Events arrived. The one who looks is a client of the
same process with an informer of its own.

The cluster is quiescent when nothing but Leases and Nodes was written for two seconds. An idle cluster is measured
first. `--no-heartbeats` renews no Lease during the run: with thousands of nodes, Leases are most of the writes."""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import dataclasses
import math
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import uvloop

import setpoint.scheduler.engine  # noqa: F401 - the first Pod loads it, which is not a cost of each Pod
from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.client.resources import builtin
from setpoint.cluster.allinone import cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.cluster.interpreter_gc import GarbageCollection
from setpoint.meta.objects import Obj
from setpoint.meta.times import parse_time
from setpoint.node.options import FleetOptions, NodeTemplate
from setpoint.node.registration import STATUS_REPORT_PERIOD
from setpoint.reconcile import Informer
from setpoint.store.interface import Event, Store

PODS = builtin("pods")
NAMESPACE = "bench"
REPLACED = 25
HEARTBEATS = ("coordination.k8s.io/leases/", "core/nodes/")
"""Prefixes of the keys that nodes write whether there are Pods or not."""
QUIET_SECONDS = 2.0
IDLE_SECONDS = 10.0
"""The period of a Lease: each node renews its own once."""
NO_HEARTBEAT = 100_000
"""Seconds of a Lease that is not renewed during a run."""


def deployment(name: str, replicas: int) -> Obj:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "env": [{"name": f"V{i}", "value": str(i)} for i in range(4)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


class Observer:
    """What an informer tells of the Pods there are."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.created: set[str] = set()
        self.bound: dict[str, float] = {}
        self.running: dict[str, float] = {}
        self.all_running = asyncio.Event()
        self.newly_bound = asyncio.Event()

    def changed(self, _: Obj | None, new: Obj | None) -> None:
        if new is None or new["metadata"]["namespace"] != NAMESPACE:
            return
        uid, now = new["metadata"]["uid"], time.perf_counter()
        self.created.add(uid)
        if new["spec"].get("nodeName") and uid not in self.bound:
            self.bound[uid] = now
            self.newly_bound.set()
        if new["status"].get("phase") == "Running" and uid not in self.running:
            self.running[uid] = now
            if len(self.running) == self.wanted:
                self.all_running.set()


class Writes:
    """Notes the writes of the whole cluster."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        """Writes other than heartbeats so far."""
        self.heartbeats = 0
        self.last = time.perf_counter()
        """The time of the latest of them."""
        store.watch("", store.revision, self._record)

    def _record(self, events: Sequence[Event], _: int) -> None:
        count = sum(not event.key.startswith(HEARTBEATS) for event in events)
        self.heartbeats += len(events) - count
        if count:
            self.count += count
            self.last = time.perf_counter()

    async def started(self, rate: float) -> None:
        """Wait until controllers have stopped to change new Nodes; `rate` is that of the heartbeats."""
        before = -math.inf
        while self.heartbeats - before > (rate * 1.5 + 5) * QUIET_SECONDS:
            before = self.heartbeats
            await asyncio.sleep(QUIET_SECONDS)
        await self.quiescent()

    async def quiescent(self) -> None:
        """Wait until all Events and statuses are written, which are part of the cost."""
        left = QUIET_SECONDS
        while left > 0:
            await asyncio.sleep(left)
            left = self.last + QUIET_SECONDS - time.perf_counter()


async def idle() -> None:
    """Measure heartbeats alone."""
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(IDLE_SECONDS)
    print(
        f"CPU of an idle cluster:  {(time.process_time() - cpu) / (time.perf_counter() - began) * 100:7.1f} % of a core"
    )


class Stopwatch:
    """The time and the CPU time since it was made."""

    def __init__(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    def report(self, what: str, pods: int) -> None:
        took, used = time.perf_counter() - self._began, time.process_time() - self._cpu
        print(f"{what:24} {took:7.2f} s  {pods / took:7.0f} Pods/s {used / pods * 1e6:7.0f} us of CPU each")


async def bench(client: Client, pods: Informer[Obj], writes: Writes, wanted: int, sets: int) -> None:
    seen = Observer(wanted)
    pods.add_handler(seen.changed)
    resident = resident_now()
    watch, began, written = Stopwatch(), time.perf_counter(), writes.count
    for number in range(sets):
        await client.create(deployment(f"web-{number}", wanted // sets))
    reporter = asyncio.ensure_future(report(seen))
    await asyncio.wait_for(seen.all_running.wait(), 1200)
    reporter.cancel()
    watch.report("POST until all Running:", wanted)
    bound = max(seen.bound.values()) - began
    print(f"POST until all bound:    {bound:7.2f} s  {wanted / bound:7.0f} Pods/s")
    print(f"resident for each Pod:   {(resident_now() - resident) / wanted / 1024:7.1f} KiB")
    await writes.quiescent()
    watch.report("POST until quiescent:", wanted)
    print(f"writes for each Pod:     {(writes.count - written) / wanted:7.1f}")


async def report(seen: Observer) -> None:
    while True:
        await asyncio.sleep(5)
        print(f"  ... {len(seen.created)} created, {len(seen.bound)} bound, {len(seen.running)} Running", flush=True)


def resident_now() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def churn(client: Client, pods: Informer[Obj], seconds: int) -> None:
    names = [pod["metadata"]["name"] for pod in pods.items.values() if pod["metadata"]["namespace"] == NAMESPACE]
    writes: list[float] = []
    reads: list[float] = []

    async def change(number: int) -> None:
        name, began = names[number * 7 % len(names)], time.perf_counter()
        await client.patch(PODS, name, {"metadata": {"annotations": {"changed": str(number)}}}, NAMESPACE)
        written = time.perf_counter()
        await client.get(PODS, name, NAMESPACE)
        writes.append(written - began)
        reads.append(time.perf_counter() - written)

    began, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as tasks:
        for number in range(seconds * 20):
            await asyncio.sleep(max(0.0, began + number / 20 - time.perf_counter()))
            tasks.create_task(change(number))
    took, used = time.perf_counter() - began, time.process_time() - cpu
    for what, times in (("changes", writes), ("reads", reads)):
        times.sort()
        print(
            f"{what} at {len(times) / took:.1f}/s: median {median(times) * 1e3:.1f} ms, "
            f"p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms, most {times[-1] * 1e3:.1f} ms"
        )
    print(f"CPU meanwhile:           {used / took * 100:7.0f} % of a core")


async def turn_over(client: Client, pods: Informer[Obj], rate: int) -> None:
    """Delete `rate` Pods a second, each once, for a minute."""
    began, cpu, gone = time.perf_counter(), time.process_time(), set[str]()
    for number in range(rate * 60):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        ours = (pod["metadata"] for pod in pods.items.values() if pod["metadata"]["namespace"] == NAMESPACE)
        meta = next((meta for meta in ours if meta["uid"] not in gone), None)
        if meta is not None:
            gone.add(meta["uid"])
            await client.delete(PODS, meta["name"], NAMESPACE, grace_period=0)
    took = time.perf_counter() - began
    print(f"Pods replaced: {len(gone) / took:.1f}/s, {(time.process_time() - cpu) / took * 100:.0f} % of a core")


class EventLag:
    """How long after their time stamps Events arrive. The stamps of most have whole seconds: half a second is none."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    async def follow(self, client: Client) -> None:
        async for kind, event in client.watch(("v1", "Event")):
            stamp = event.get("lastTimestamp") or event.get("eventTime")
            if kind != "DELETED" and stamp:
                self.seen.append(time.time() - parse_time(stamp).timestamp())

    def report(self) -> None:
        lags = sorted(self.seen)
        print(
            f"{len(lags)} Events arrived late by: median {median(lags):.1f} s, "
            f"p99 {lags[len(lags) * 99 // 100]:.1f} s, most {lags[-1]:.1f} s"
        )


async def replace(client: Client, pods: Informer[Obj]) -> None:
    times = []
    for victim in [pod for pod in pods.items.values() if pod["metadata"]["namespace"] == NAMESPACE][:REPLACED]:
        seen = Observer(0)
        pods.add_handler(seen.changed)
        seen.newly_bound.clear()
        began = time.perf_counter()
        await client.delete(PODS, victim["metadata"]["name"], NAMESPACE, grace_period=0)
        await asyncio.wait_for(seen.newly_bound.wait(), 30)
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.2)
    print(
        f"deleted Pod until its successor is bound: median {median(times) * 1e3:.1f} ms, most {max(times) * 1e3:.1f} ms"
    )


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ApiServerConfig(Path(directory), port=0, store=options.store)
        began = time.perf_counter()
        fleet, grace = FleetOptions(options.nodes), None
        if options.no_heartbeats:
            fleet = dataclasses.replace(fleet, template=NodeTemplate(lease_seconds=NO_HEARTBEAT))
            grace = float(NO_HEARTBEAT)
        async with cluster(config, nodes=fleet, node_monitor_grace_period=grace) as running:
            print(f"{options.nodes} nodes ready after  {time.perf_counter() - began:7.2f} s")
            server = running.apiserver
            GarbageCollection(asyncio.get_running_loop(), server.api.resources.count).start()  # as in a server
            async with InProcess(server.api.handle) as entrance:
                transport = SharingTransport(entrance, server.loopback_token)
                client = Client(transport, server.api.resources.clock, user_agent="bench")
                await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
                pods = Informer[Obj](client, PODS, server.api.resources.clock)
                lag = EventLag()
                following = [asyncio.ensure_future(each) for each in (pods.run(), lag.follow(client))]
                await pods.synced.wait()
                writes = Writes(server.api.resources.store)
                await writes.started(options.nodes / (STATUS_REPORT_PERIOD if options.no_heartbeats else IDLE_SECONDS))
                await idle()
                profile = cProfile.Profile() if options.profile else None
                if profile is not None:
                    profile.enable()
                await bench(client, pods, writes, options.pods, options.sets)
                if profile is not None:
                    profile.disable()
                    profile.dump_stats(options.profile)
                await replace(client, pods)
                if options.churn:
                    await churn(client, pods, options.churn)
                if options.turnover:
                    await turn_over(client, pods, options.turnover)
                    await writes.quiescent()
                lag.report()
                print(f"resident at most:        {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:7.0f} MiB")
                for task in following:
                    task.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--churn", type=int, default=0)
    parser.add_argument("--turnover", type=int, default=0)
    parser.add_argument("--no-heartbeats", action="store_true")
    parser.add_argument("--profile")
    uvloop.run(main(parser.parse_args()))
