"""What the past costs: `python bench/history.py [PODS] [OBJECTS]`.

Bytes per change in the archive, with the changes of a Deployment that is created, updated and deleted on a simulated
cluster, and what that makes of a day. Then reads of the past beyond the history in memory: one object, a list of 2,000
Pods, and a whole state of many objects, with the longest time for which the event loop was held meanwhile."""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import uvloop

from setpoint.apiserver.history.reader import HistoryReader
from setpoint.cluster.interpreter_gc import GarbageCollection
from setpoint.meta.cause import WriteCause, encode
from setpoint.store.archive import NEVER_KEPT, FileArchive, Retention
from setpoint.store.history import History
from setpoint.store.interface import Delete, KeyValue, Op, Put
from setpoint.store.memory import MemoryStore
from setpoint.system import SystemClock
from setpoint.testing import run_virtual, virtual_cluster

DAY = 24 * 3600
RATE = 20
"""Changes per second of a busy cluster of thousands of nodes."""
EVERYTHING = Retention(seconds=1e9, size=1 << 40)


def deployment(replicas: int, image: str) -> dict[str, object]:
    labels = {"app": "web"}
    container = {"name": "web", "image": image, "ports": [{"containerPort": 80}]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    }


async def lived(pods: int) -> History:
    """Return the history of a cluster on which a Deployment was created, updated and scaled down."""
    async with virtual_cluster(nodes=20) as cluster:
        await cluster.client.create(deployment(pods, "nginx:1.27"))
        await cluster.settle()
        await cluster.client.apply(deployment(pods, "nginx:1.28"), field_manager="bench", force=True)
        await cluster.settle()
        await cluster.client.apply(deployment(pods // 2, "nginx:1.28"), field_manager="bench", force=True)
        await cluster.settle()
        store = cluster.embedded.api.resources.store
        assert isinstance(store, MemoryStore)
        return store.copy_of_history()


async def bytes_per_change(history: History, folder: Path) -> None:
    store = MemoryStore(history)
    archive = FileArchive(folder / "lived.db", EVERYTHING, SystemClock())
    await archive.follow(store)
    events, _, _ = history.transactions(history.compacted, 1 << 30)
    kept = [event for event in events if not event.key.startswith(NEVER_KEPT)]
    values = sum(len(event.now.value) for event in kept if event.now is not None)
    causes = sum(len(each.cause) for each in history.causes(history.compacted, 0))
    began, used = time.perf_counter(), time.process_time()
    await store.compact(store.revision)
    took, used = time.perf_counter() - began, time.process_time() - used
    size = archive._file.size()
    each = size / len(kept)
    print(f"{len(kept)} changes of {values / len(kept):.0f} bytes, causes of {causes / len(kept):.0f} bytes each")
    print(
        f"archive: {each:.0f} bytes a change, {values / size:.1f} times smaller; {took * 1e6 / len(kept):.0f} us each"
    )
    print(f"CPU {used * 1e6 / len(kept):.0f} us a change, in the archive's thread")
    print(f"a day of {RATE} changes a second: {RATE * DAY * each / 2**20:.0f} MiB")
    print(
        f"512 MiB: {(512 << 20) / each / RATE / 3600:.0f} hours of that, {(512 << 20) / each / 1e6:.1f} million changes"
    )
    by_kind: dict[str, int] = {}
    for event in kept:
        kind = "/".join(event.key.split("/")[:2])
        by_kind[kind] = by_kind.get(kind, 0) + 1
    print(", ".join(f"{kind} {count}" for kind, count in sorted(by_kind.items(), key=lambda item: -item[1])[:6]))
    await archive.close()


async def held(what: str, work: Callable[[], Awaitable[object]], rounds: int = 1) -> None:
    """Print how long some work takes, its CPU time, and how long it holds the event loop at most."""
    kept: list[object] = []  # to free a large result takes time too
    longest, last, done = 0.0, time.thread_time(), False

    async def beat() -> None:
        nonlocal longest, last
        while not done:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    beating = asyncio.ensure_future(beat())
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        kept.append(await work())
        times.append(time.perf_counter() - began)
    done = True
    await beating
    times.sort()
    held_for = f"event loop held for {longest * 1000:5.1f} ms of CPU at most"
    print(f"{what:<40} p50 {times[len(times) // 2] * 1000:8.1f} ms, best {times[0] * 1000:8.1f} ms; {held_for}")


async def reads(sample: KeyValue, objects: int, folder: Path) -> None:
    """Read a state of so many objects, of which a tenth have changed since, from the archive."""
    store = MemoryStore()
    archive = FileArchive(folder / "many.db", EVERYTHING, SystemClock())
    await archive.follow(store)
    pod = orjson.loads(sample.value)
    numbers = iter(range(1 << 60))

    def value(number: int) -> bytes:
        pod["metadata"]["name"] = f"pod-{number}"
        pod["metadata"]["annotations"] = {"number": str(next(numbers))}
        return orjson.dumps(pod)

    async def write(ops: list[Op]) -> None:
        await store.txn(ops, encode(WriteCause(int(time.time() * 1000), "patch", "bench")))

    for start in range(0, objects, 500):
        place = "default" if start < 2000 else f"n{start // 2000}"
        await write([Put(f"core/pods/{place}/pod-{start + at}", value(start + at)) for at in range(500)])
    then = store.revision
    for start in range(2000):
        await write([Put(f"core/pods/default/pod-{start}", value(start))])
    for start in range(2000, objects, 20):
        number = start // 500 * 500
        place = "default" if number < 2000 else f"n{number // 2000}"
        await write([Put(f"core/pods/{place}/pod-{start}", value(start)), Delete(f"core/pods/{place}/pod-{start + 1}")])
    gc.collect()
    GarbageCollection(asyncio.get_running_loop(), lambda: objects).start()  # as in a server
    reader = HistoryReader(store)
    await held(f"{objects} objects, in memory", lambda: reader.list_at("", then))
    await store.compact(store.revision - 1)
    print(f"archive of {objects} objects: {archive._file.size() / 2**20:.0f} MiB")
    await held("get of one object", lambda: reader.at("core/pods/default/pod-7", then), 50)
    await held("history of one object", lambda: reader.versions("core/pods/default/pod-7"), 50)
    await held("list of 2,000 Pods", lambda: reader.list_at("core/pods/default/", then), 5)
    await held(f"{objects} objects", lambda: reader.list_at("", then))
    await archive.close()


def a_pod(history: History) -> KeyValue:
    return next(entry for key, entry in history.state.items() if key.startswith("core/pods/default/"))


def main() -> None:
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    objects = int(sys.argv[2]) if len(sys.argv) > 2 else 150_000
    history = run_virtual(lambda: lived(pods))
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(bytes_per_change(history, Path(folder)))
        uvloop.run(reads(a_pod(history), objects, Path(folder)))


if __name__ == "__main__":
    main()
