"""Measure whether anything grows under churn: `python bench/soak.py [--minutes 30] [--nodes 5] [--warm-up MINUTES]`.

A whole cluster in a process of its own, as `setpoint up` runs it (TLS, RBAC, SQLite), and clients in this one, for so
many minutes: Deployments that are created, scaled and deleted, Jobs, namespaces, CustomResourceDefinitions with their
objects, watches that are opened and broken off, short connections as kubectl makes them, and connections that end in
the middle. Nothing that they create stays. Once a minute a line tells what the server takes: resident memory, blocks of
memory in use (which fragmentation does not blur), open files, asyncio tasks, keys in workqueues, objects stored, Pods
and the workers of Pods, and what the garbage collector did meanwhile, with its longest pause. Then come four minutes
without churn, in which what is kept on purpose expires: what is left has leaked, or is a table with a bound. At the
end: how much each has grown after the warm-up (a third of the time, at most 10 minutes). How many objects are stored
follows the rate of the churn, which follows the speed of the machine.

Events expire after 2 minutes and history is compacted every minute, so that what is kept on purpose is level soon. The
last columns say how many Events arrived in that minute, and how long after their time stamps, at most.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import random
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from setpoint.client import Client, Unreachable
from setpoint.client.https import connect
from setpoint.client.kubeconfig import Access
from setpoint.cluster.allinone import RunningCluster, cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.interpreter_gc import GarbageCollection
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj
from setpoint.system import SystemClock

Act = Callable[[Client, str], Awaitable[None]]

PODS, NAMESPACES, EVENTS = ("v1", "Pod"), ("v1", "Namespace"), ("v1", "Event")
DEPLOYMENTS, JOBS = ("apps/v1", "Deployment"), ("batch/v1", "Job")
DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
DRAINED = 4.0
"""Minutes after the churn until Events have expired, history is compacted, and nothing is left but what was there."""
WORK = "soak"
"""The namespace of what is no namespace's churn."""


# -- the server -------------------------------------------------------------------------------------------------------


class Pauses:
    """The longest collection since the last look, in CPU time: what else runs on the machine does not count."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = 0.0
        gc.callbacks.append(self._heard)

    def _heard(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.longest = max(self.longest, time.thread_time() - self._began)

    def taken(self) -> float:
        longest, self.longest = self.longest, 0.0
        return longest


def measured(running: RunningCluster, pauses: Pauses, collecting: GarbageCollection) -> Obj:
    api, parts = running.apiserver.api, running.components
    elected = [each.current for each in (parts.controllers, parts.scheduler)]
    managers = [*(each.manager for each in elected if each is not None), parts.fleet.current]
    queued = sum(len(each.queue) for manager in managers if manager is not None for each in manager.controllers)
    pods = api.resources.registry("", "pods").cache
    statistics = gc.get_stats()
    return {
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "blocks": sys.getallocatedblocks(),
        "fds": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "queued": queued,
        "objects": api.resources.count(),
        "pods": len(pods),
        "workers": sum(type(each).__name__ == "PodWorker" for each in alive()),
        "collections": [each["collections"] for each in statistics],
        "collected": sum(each["collected"] for each in statistics),
        "full": collecting.full_collections,
        "pause": pauses.taken(),
        "cpu": time.process_time(),
    }


def alive() -> list[object]:
    """Every object that the collector knows; those that were frozen are not among them until they are thawed."""
    gc.unfreeze()
    found = gc.get_objects()
    gc.freeze()
    return found


async def serve(directory: Path, nodes: int, every: float) -> None:
    config = ApiServerConfig(directory, port=0, event_ttl=120.0, compaction_interval=60.0)
    pauses = Pauses()
    async with cluster(config, nodes=nodes) as running:
        server = running.apiserver
        assert server.certificates is not None
        collecting = GarbageCollection(asyncio.get_running_loop(), server.api.resources.count)
        collecting.start()
        first = {"url": server.url, "ca": server.certificates.ca.read_text(), "token": server.loopback_token}
        print(json.dumps(first), flush=True)
        while True:
            print(json.dumps(measured(running, pauses, collecting)), flush=True)
            await asyncio.sleep(every)


# -- the churn --------------------------------------------------------------------------------------------------------


def pod_template(labels: dict[str, str], **container: Any) -> Obj:
    return {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "busybox", **container}]},
    }


async def until(check: Callable[[], Awaitable[bool]], within: float = 120.0) -> None:
    ends = time.monotonic() + within
    while not await check():
        if time.monotonic() > ends:
            raise TimeoutError
        await asyncio.sleep(0.3)


async def deployment(client: Client, name: str) -> None:
    """Created, ready, scaled up and down, deleted."""
    labels = {"app": name}
    script = "trap 'exit 0' TERM; while true; do echo still here; sleep 1; done"
    template = pod_template(labels, command=["sh", "-c", script], livenessProbe={"exec": {"command": ["true"]}})
    await client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": WORK},
            "spec": {"replicas": 4, "selector": {"matchLabels": labels}, "template": template},
        }
    )

    async def ready() -> bool:
        found = await client.get(DEPLOYMENTS, name, WORK)
        return bool(found["status"].get("readyReplicas", 0) >= 4)

    await until(ready)
    for replicas in (8, 2):
        await client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, WORK)
        await asyncio.sleep(1)
    await client.delete(DEPLOYMENTS, name, WORK)


async def job(client: Client, name: str) -> None:
    template = pod_template({"app": name}, command=["sh", "-c", "echo done"])
    template["spec"]["restartPolicy"] = "Never"
    await client.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": WORK},
            "spec": {"completions": 3, "parallelism": 3, "template": template},
        }
    )

    async def done() -> bool:
        return bool((await client.get(JOBS, name, WORK))["status"].get("succeeded", 0) == 3)

    await until(done)
    await client.delete(JOBS, name, WORK, propagation="Background")


async def namespace(client: Client, name: str) -> None:
    """With some objects in it, deleted with them."""
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    meta = {"name": "one", "namespace": name}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": "b"}})
    await client.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": {"app": "one"}, "ports": [{"port": 80}]},
        }
    )
    labels = {"app": "one"}
    await client.create(
        {"apiVersion": "v1", "kind": "Pod", **pod_template(labels), "metadata": meta | {"labels": labels}}
    )
    await asyncio.sleep(1)
    await client.delete(NAMESPACES, name)


async def definition(client: Client, name: str) -> None:
    """A kind with a few objects, deleted with them."""
    kind, group = name.replace("-", ""), "soak.example.com"
    size: Obj = {"type": "object", "properties": {"size": {"type": "integer"}}}
    size |= {"x-kubernetes-validations": [{"rule": "self.size < 100"}]}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": size}}}
    await client.create(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind}s.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": f"{kind}s", "kind": kind.title()},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
    )

    async def established() -> bool:
        conditions = (await client.get(DEFINITIONS, f"{kind}s.{group}"))["status"].get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    await until(established)
    await asyncio.sleep(1)
    for number in range(5):
        await client.create(
            {
                "apiVersion": f"{group}/v1",
                "kind": kind.title(),
                "spec": {"size": number},
                "metadata": {"name": f"one-{number}", "namespace": WORK},
            }
        )
    await client.delete(DEFINITIONS, f"{kind}s.{group}")


async def command(client: Client, name: str) -> None:
    """What `kubectl get` does."""
    await client.list(PODS, WORK)
    with suppress(ApiError):
        await client.get(PODS, name, WORK)


async def watch(client: Client, _: str) -> None:
    """For a while, and broken off."""
    listed = await client.list(PODS, WORK)
    with suppress(TimeoutError):
        async with client.watch(PODS, WORK, resource_version=listed.resource_version) as events:
            async with asyncio.timeout(random.uniform(0.1, 4)):
                async for _event in events:
                    pass


CHURN: dict[Act, tuple[int, float]] = {
    deployment: (4, 0.5),
    job: (2, 0.5),
    namespace: (1, 2.0),
    definition: (1, 2.0),
    command: (2, 0.1),
    watch: (8, 0.1),
}
"""How many do each at once, and how long each of them rests in between."""


async def keep_on(access: Access, act: Act, rest: float, numbers: itertools.count[int], failures: list[str]) -> None:
    """Each time over connections of its own."""
    while True:
        client = connect(access, SystemClock(), user_agent=f"soak-{act.__name__}")
        try:
            await act(client, f"{act.__name__}-{next(numbers)}")
        except (ApiError, Unreachable, TimeoutError) as error:
            failures.append(f"{act.__name__}: {type(error).__name__} {error}")
        finally:
            await client.close()
        await asyncio.sleep(rest)


async def break_off(access: Access) -> None:
    """Connections that end before their request, in it, or before its answer; some without TLS."""
    context = ssl.create_default_context(cadata=(access.ca or b"").decode())
    host, _, port = access.server.removeprefix("https://").rpartition(":")
    head = f" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {access.token}\r\n".encode()
    pieces = (b"", b"GET /api", b"GET /api/v1/pods?watch=1" + head + b"\r\n", b"GET /api/v1/pods" + head + b"\r\n")
    for number in itertools.count():
        with suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port), ssl=context if number % 5 else None)
            writer.write(pieces[number % len(pieces)])
            await asyncio.sleep(0.05)
            writer.transport.abort()
        await asyncio.sleep(0.2)


class Lag:
    """How long after their time stamps Events arrive."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    async def follow(self, client: Client) -> None:
        while True:
            with suppress(ApiError, Unreachable):
                listed = await client.list(EVENTS)
                async for kind, event in client.watch(EVENTS, resource_version=listed.resource_version):
                    stamp = event.get("lastTimestamp") or event.get("eventTime")
                    if kind in ("ADDED", "MODIFIED") and stamp:
                        then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
                        self.seen.append((datetime.now(UTC) - then).total_seconds())

    def taken(self) -> list[float]:
        seen, self.seen = self.seen, []
        return seen


# -- the report -------------------------------------------------------------------------------------------------------

HEADER = (
    "min  RSS MB  blocks k  fds  tasks  queued  objects  Pods  workers  gc 0/1/2  full  freed  pause ms  CPU %"
    "  Events  lag s"
)


def line(minute: float, now: Obj, before: Obj, lags: list[float]) -> str:
    collections = "/".join(str(a - b) for a, b in zip(now["collections"], before["collections"], strict=True))
    cpu = (now["cpu"] - before["cpu"]) / max(1e-9, now["at"] - before["at"]) * 100
    return (
        f"{minute:4.0f} {now['resident'] / 1e6:7.1f} {now['blocks'] / 1e3:9.0f} {now['fds']:4} {now['tasks']:6} "
        f"{now['queued']:7} {now['objects']:8} {now['pods']:5} {now['workers']:8} {collections:>9} {now['full']:5} "
        f"{now['collected'] - before['collected']:6} {now['pause'] * 1e3:9.1f} {cpu:6.0f} {len(lags):7} "
        f"{max(lags, default=0.0):6.1f}"
    )


def verdict(samples: list[Obj], warm_up: float) -> str:
    level = [each for each in samples if each["minute"] >= warm_up]
    if len(level) < 4:
        return "too short to tell whether anything grows"
    third = max(1, len(level) // 3)
    found = []
    for name in ("objects", "resident", "blocks", "fds", "tasks"):
        early = sum(each[name] for each in level[:third]) / third
        late = sum(each[name] for each in level[-third:]) / third
        found.append(f"{name} {(late / early - 1) * 100:+.1f} %")
    return f"the last third of the churn after minute {warm_up:.0f} against the first: " + ", ".join(found)


@asynccontextmanager
async def child(directory: str, nodes: int, every: float) -> AsyncIterator[asyncio.StreamReader]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--serve",
        directory,
        "--nodes",
        str(nodes),
        "--every",
        str(every),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def soak(options: argparse.Namespace) -> None:
    warm_up = options.warm_up if options.warm_up is not None else min(10.0, options.minutes / 3)
    samples: list[Obj] = []
    failures: list[str] = []
    churned = 0
    with tempfile.TemporaryDirectory() as directory:
        async with child(directory, options.nodes, options.every) as lines:
            first = json.loads(await lines.readline())
            access = Access(first["url"], ca=first["ca"].encode(), token=first["token"])
            client, lag, numbers = connect(access, SystemClock(), user_agent="soak"), Lag(), itertools.count()
            await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WORK}})
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(lag.follow(client)), tasks.create_task(break_off(access))]
                for act, (count, rest) in CHURN.items():
                    running += [tasks.create_task(keep_on(access, act, rest, numbers, failures)) for _ in range(count)]
                began = time.monotonic()
                print(HEADER, flush=True)
                while text := await lines.readline():
                    now = json.loads(text)
                    now["at"] = time.monotonic()
                    now["minute"] = (now["at"] - began) / 60
                    samples.append(now)
                    print(line(now["minute"], now, samples[max(0, len(samples) - 2)], lag.taken()), flush=True)
                    if now["minute"] >= options.minutes + DRAINED:
                        break
                    if now["minute"] >= options.minutes:
                        churned = churned or len(samples)
                        for task in running:
                            task.cancel()
    print(verdict(samples[:churned], warm_up))
    print(f"{next(numbers)} acts, {len(failures)} failed" + (f", the last: {failures[-1]}" if failures else ""))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--warm-up", type=float)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--every", type=float, default=60.0, help="Seconds between two lines.")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        with suppress(KeyboardInterrupt):
            uvloop.run(serve(Path(given.serve), given.nodes, given.every))
    else:
        uvloop.run(soak(given))
