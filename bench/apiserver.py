"""Benchmarks of an API server, or of two side by side in one run.

    python bench/apiserver.py --server NAME=URL,TOKEN[,PID[+PID...]] [--server ...] [get list paged create ...]

With several servers every benchmark alternates between them, so that a noisy machine is noisy for all; the last column
is the first server's rate over the other's."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Iterator

import uvloop
from load import Connection, Result, Target, connect, run

NAMESPACE = "bench"
PODS = 2000


def pod(name: str, labels: dict[str, str] | None = None) -> bytes:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"app": "bench", **(labels or {})},
                "annotations": {"note": "x" * 100},
            },
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/app:1",
                        "command": ["/app", "--serve"],
                        "env": [{"name": f"V{i}", "value": str(i)} for i in range(8)],
                        "ports": [{"containerPort": 8080, "name": "http"}],
                        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            },
        }
    ).encode()


BASE = f"/api/v1/namespaces/{NAMESPACE}"
# Apart from what is listed: a server that has been measured before still lists 2,000 Pods.
CREATED = f"/api/v1/namespaces/{NAMESPACE}-created"


async def send(connection: Connection, data: bytes) -> int:
    status, _ = await connection.send(data)
    return status


async def prepare(target: Target) -> None:
    """A namespace with 2,000 Pods, made if they are not there."""
    connection = await connect(target)
    for name in (NAMESPACE, f"{NAMESPACE}-created"):
        body = json.dumps({"metadata": {"name": name}}).encode()
        await send(connection, target.request("POST", "/api/v1/namespaces", body))
    if await send(connection, target.request("GET", f"{BASE}/pods/pod-{PODS - 1:05}")) == 200:
        return
    numbers = iter(range(PODS))

    async def fill() -> None:
        mine = await connect(target)
        for number in numbers:
            await send(
                mine, target.request("POST", f"{BASE}/pods", pod(f"pod-{number:05}", {"group": str(number % 10)}))
            )

    await asyncio.gather(*(fill() for _ in range(32)))


async def bench_get(target: Target, seconds: float) -> Result:
    requests = [target.request("GET", f"{BASE}/pods/pod-{i:05}") for i in range(500)]
    return await run(target, lambda n: itertools.cycle(requests), connections=16, seconds=seconds)


async def bench_list(target: Target, seconds: float) -> Result:
    request = target.request("GET", f"{BASE}/pods?resourceVersion=0")
    return await run(target, lambda n: itertools.repeat(request), connections=2, seconds=seconds)


async def bench_list_label(target: Target, seconds: float) -> Result:
    request = target.request("GET", f"{BASE}/pods?labelSelector=group%3D3&limit=50")
    return await run(target, lambda n: itertools.repeat(request), connections=4, seconds=seconds)


async def bench_create(target: Target, seconds: float) -> Result:
    run_id = f"{time.time_ns() % 10**9:x}"

    def make(number: int) -> Iterator[bytes]:
        return (target.request("POST", f"{CREATED}/pods", pod(f"c{run_id}-{number}-{i}")) for i in itertools.count())

    return await run(target, make, connections=64, seconds=seconds)


async def bench_patch(target: Target, seconds: float) -> Result:
    def make(number: int) -> Iterator[bytes]:
        path = f"{BASE}/pods/pod-{number:05}"
        return (
            target.request(
                "PATCH", path, b'{"metadata":{"annotations":{"note":"%d"}}}' % i, "application/merge-patch+json"
            )
            for i in itertools.count(time.time_ns())
        )

    return await run(target, make, connections=64, seconds=seconds)


async def bench_apply(target: Target, seconds: float) -> Result:
    def make(number: int) -> Iterator[bytes]:
        path = f"{BASE}/configmaps/apply-{number}?fieldManager=bench&force=true"
        for i in itertools.count(time.time_ns()):
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"apply-{number}"},
                "data": {"a": str(i), "b": "2", "c": "3"},
            }
            yield target.request("PATCH", path, json.dumps(body).encode(), "application/apply-patch+yaml")

    return await run(target, make, connections=64, seconds=seconds)


class Watcher(asyncio.Protocol):
    """Counts events by how each begins."""

    def __init__(self) -> None:
        self.events = 0

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b'{"type":"')


async def bench_watch(target: Target, seconds: float, watchers: int = 1000, writers: int = 1) -> Result:
    """Fan-out: every change of a ConfigMap goes to all watchers. The count is events delivered. The next changes, one
    of each writer, are made when all watchers have received the last ones."""
    loop = asyncio.get_running_loop()
    host, port = target.address
    opened: list[tuple[asyncio.Transport, Watcher]] = []
    request = target.request("GET", f"{BASE}/configmaps?watch=1&resourceVersion=0")
    for _ in range(watchers):
        transport, protocol = await loop.create_connection(Watcher, host, port, ssl=target.tls)
        transport.write(request)
        opened.append((transport, protocol))
    await asyncio.sleep(1.0)
    connections = [await connect(target) for _ in range(writers)]
    for number, connection in enumerate(connections):
        body = json.dumps({"metadata": {"name": f"fan-out-{number}"}, "data": {"a": "x" * 1500}}).encode()
        await send(connection, target.request("POST", f"{BASE}/configmaps", body))
    await asyncio.sleep(0.5)
    start = sum(watcher.events for _, watcher in opened)
    cpu, began, sent = target.cpu(), time.perf_counter(), 0

    async def change(number: int, connection: Connection) -> None:
        patch = b'{"data":{"b":"%d"}}' % time.time_ns()
        path = f"{BASE}/configmaps/fan-out-{number}"
        await send(connection, target.request("PATCH", path, patch, "application/merge-patch+json"))

    while time.perf_counter() - began < seconds:
        await asyncio.gather(*(change(number, connection) for number, connection in enumerate(connections)))
        sent += writers
        while sum(watcher.events for _, watcher in opened) - start < sent * watchers:
            await asyncio.sleep(0.001)
            if time.perf_counter() - began > seconds * 5:
                break
    took, used = time.perf_counter() - began, target.cpu() - cpu
    count = sum(watcher.events for _, watcher in opened) - start
    for transport, _ in opened:
        transport.abort()
    return Result(count, took, used, 0.0, 0.0)


async def bench_burst(target: Target, seconds: float) -> Result:
    return await bench_watch(target, seconds, writers=16)


BENCHES = {
    "get": bench_get,
    "list": bench_list,
    "paged": bench_list_label,
    "create": bench_create,
    "patch": bench_patch,
    "apply": bench_apply,
    "watch": bench_watch,
    "burst": bench_burst,
}


def parse_target(text: str) -> Target:
    name, _, rest = text.partition("=")
    url, token, *pids = rest.split(",")
    return Target(name, url, token, tuple(int(pid) for pid in pids[0].split("+")) if pids else ())


async def measure(
    targets: list[Target], names: list[str], seconds: float, rounds: int
) -> AsyncIterator[tuple[str, list[Result]]]:
    """Yield each benchmark with the best result of each server. The rounds alternate between the servers."""
    for target in targets:
        await prepare(target)
    for name in names or BENCHES:
        best: list[Result | None] = [None] * len(targets)
        for _ in range(rounds):
            for number, target in enumerate(targets):
                result, known = await BENCHES[name](target, seconds), best[number]
                if known is None or result.rate > known.rate:
                    best[number] = result
        yield name, [each for each in best if each is not None]


async def main(arguments: argparse.Namespace) -> None:
    targets = [parse_target(text) for text in arguments.server]
    print(f"{'benchmark':10} {'server':12} {'per second':>11} {'CPU us each':>12} {'p50 ms':>8} {'p99 ms':>8}  ratio")
    async for name, results in measure(targets, arguments.benches, arguments.seconds, arguments.rounds):
        for target, result in zip(targets, results, strict=True):
            ratio = "" if target is targets[0] else f"{results[0].rate / result.rate:.1f}x"
            print(
                f"{name:10} {target.name:12} {result.rate:11,.0f} {result.cpu_each:12,.1f} "
                f"{result.p50 * 1e3:8.2f} {result.p99 * 1e3:8.2f}  {ratio}"
            )
    for target in targets:
        if target.pids:
            print(f"memory     {target.name:12} {target.memory() / 2**20:8.0f} MiB resident")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("benches", nargs="*")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(parser.parse_args()))
