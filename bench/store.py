"""Rates of the stores: `python bench/store.py [DIRECTORY] [--etcd URL]`.

The directory should be on the disk that matters. With `--etcd`, the same transactions are committed to etcd in the same
run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import uvloop

from setpoint.store.interface import Put, Store
from setpoint.store.memory import MemoryStore
from setpoint.store.sqlite import SqliteStore

WRITERS = 64
SECONDS = 3.0
VALUE = b'{"metadata":{"resourceVersion":""}}' + b" " * 1_965
STAMP = 32


async def commits(name: str, store: Store) -> None:
    latencies: list[float] = []
    end = time.perf_counter() + SECONDS

    async def write(writer: int) -> None:
        number = 0
        while (began := time.perf_counter()) < end:
            number += 1
            await store.txn([Put(f"pods/default/{writer}-{number}", VALUE, 0, STAMP)], b"bench")
            latencies.append(time.perf_counter() - began)

    began, loop_cpu, all_cpu = time.perf_counter(), time.thread_time(), time.process_time()
    await asyncio.gather(*map(write, range(WRITERS)))
    count, elapsed = len(latencies), time.perf_counter() - began
    latencies.sort()
    print(f"{name}, {WRITERS} writers".ljust(35) + f"{count / elapsed:10,.0f} /s")
    print(f"  CPU on the event loop            {(time.thread_time() - loop_cpu) / count * 1e6:10.1f} us each")
    print(f"  CPU of this process              {(time.process_time() - all_cpu) / count * 1e6:10.1f} us each")
    p50, p99 = latencies[count // 2] * 1e3, latencies[count * 99 // 100] * 1e3
    print(f"  latency p50 / p99                {p50:10.1f} / {p99:.1f} ms")


async def reads() -> None:
    store = MemoryStore()
    for number in range(200_000):
        await store.txn([Put(f"{'pods' if number % 2 else 'leases'}/ns-{number % 100:03}/{number:06}", VALUE)])
    revision = store.revision
    await store.compact(revision - 1_000)
    rounds = 200

    async def measure(name: str, prefix: str, limit: int, at: int) -> None:
        began = time.perf_counter()
        for _ in range(rounds):
            page = await store.list(prefix, limit=limit, revision=at)
        each = (time.perf_counter() - began) / rounds
        print(f"{name:35}{each * 1e6:10.0f} us ({len(page.items):,} of {page.total:,})")

    await measure("list a namespace", "pods/ns-001/", 0, 0)
    await measure("list a page of 500", "pods/", 500, 0)
    await measure("list a page, 1,000 writes ago", "pods/", 500, revision - 999)
    began = time.perf_counter()
    for _ in range(100_000):
        await store.get("pods/ns-001/000001")
    print(f"{'get':35}{(time.perf_counter() - began) * 10:10.2f} us")


async def resume() -> None:
    """A watch of one resource takes up after 300,000 revisions of others; the same by a scan of the whole log."""
    store = MemoryStore()
    await store.txn([Put("core/configmaps/default/one", VALUE)])
    for number in range(300_000):
        await store.txn([Put(f"coordination.k8s.io/leases/node-leases/{number % 1_000}", b"{}")])
    history = store._history
    rounds = 20

    def measure(name: str, do: Callable[[], object], rounds: int) -> float:
        best = float("inf")
        for _ in range(rounds):
            began = time.process_time()
            do()
            best = min(best, time.process_time() - began)
        print(f"{name:35}{best * 1e6:10.1f} us")
        return best

    prefix = "core/configmaps/"
    scan = measure("resume a watch, log scanned", lambda: [e for e in history._log if e.key.startswith(prefix)], 5)
    index = measure("resume a watch, log indexed", lambda: history.replay(prefix, 1, 512), rounds)
    print(f"{'  ratio':35}{scan / index:10,.0f}")
    past = measure("list a page of the past", lambda: history.page(prefix, "", 500, 2), rounds)
    print(f"{'  ratio to a scan':35}{scan / past:10,.0f}")


async def memory(path: Path) -> None:
    store = SqliteStore.open(path)
    count = 50_000
    before = resident()
    for at in range(0, count, WRITERS):
        keys = [f"pods/default/memory-{number}" for number in range(at, min(at + WRITERS, count))]
        # The stamp makes each value an object of its own.
        await asyncio.gather(*(store.txn([Put(key, VALUE, 0, STAMP)]) for key in keys))
    await store.compact(store.revision)
    print(f"{'memory for 1,000 keys of 2 KB':35}{(resident() - before) / count * 1_000 / 1e6:10.2f} MB")
    print(f"{'data file for 1,000 keys':35}{store.size() / count * 1_000 / 1e6:10.2f} MB")
    await store.close()
    began = time.perf_counter()
    store = SqliteStore.open(path)
    print(f"{'open a file of 50,000 keys':35}{(time.perf_counter() - began) * 1e3:10.0f} ms")
    await store.close()


def resident() -> int:
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def compare(folder: Path, endpoint: str) -> None:
    """Commit to SQLite and to etcd alternately, so that both meet the same load of the machine."""
    from setpoint.store.etcd.store import EtcdStore  # an optional dependency

    for round_number in range(2):
        sqlite = SqliteStore.open(folder / f"commits-{round_number}.db")
        await commits("SQLite", sqlite)
        await sqlite.close()
        prefix = f"/bench-{os.urandom(4).hex()}/"
        etcd = await EtcdStore.open([endpoint], prefix=prefix, number=partial(os.urandom, 16))
        await commits("etcd", etcd)
        began = time.perf_counter()
        await asyncio.gather(*(etcd.sync() for _ in range(6_400)))
        print(f"  sync, 6,400 callers at once      {(time.perf_counter() - began) / 6_400 * 1e6:10.1f} us each")
        await etcd.close()


async def main(folder: Path, etcd: str) -> None:
    if etcd:
        return await compare(folder, etcd)
    await memory(folder / "memory.db")
    store = SqliteStore.open(folder / "commits.db")
    await commits("durable transactions", store)
    await store.close()
    await reads()
    await resume()
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--etcd", default="", metavar="URL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        uvloop.run(main(Path(folder), options.etcd))
