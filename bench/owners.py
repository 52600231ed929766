"""Memory of a cluster by owner: `python bench/owners.py [--nodes 300] [--pods 6000] [--settle 30]`.

Builds a cluster as `bench/scale.py` does, waits until the Events are written, and then visits every object that the
history, the watch caches, the informers and the other parts hold. An object that several parts share is counted for the
first of them, in the order of the table."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import shutil
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uvloop
from loops import NAMESPACE, PODS, resident_now
from scale import Starts, build

from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.client import Client
from setpoint.client.inprocess import SharingTransport
from setpoint.cluster.allinone import cluster
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer
from setpoint.reconcile.events import EventRecorder
from setpoint.store.history import History
from setpoint.store.interface import KeyValue

NOT_DATA = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
PACKAGES = ("setpoint.node", "setpoint.scheduler", "setpoint.controllers", "setpoint.reconcile", "setpoint.apiserver")
NAMED = ("core/pods", "core/events", "coordination.k8s.io/leases")
SMALL = 512
"""Bytes up to which the interpreter's own allocator is used, which rounds up to 16."""


def allocated(each: object) -> int:
    size = sys.getsizeof(each)
    return (size if size <= SMALL else size + 8) + 15 & ~15


class Account:
    """Bytes by owner; every object is counted once."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.count: Counter[str] = Counter()
        self._seen: set[int] = set()

    def skip(self, *objects: object) -> None:
        self._seen.update(map(id, objects))

    def add(self, owner: str, objects: Iterable[object]) -> None:
        """Count these objects alone, without what they refer to."""
        for each in objects:
            if each is not None and id(each) not in self._seen:
                self._seen.add(id(each))
                self.bytes[owner] += allocated(each)
                self.count[owner] += 1

    def walk(self, owner: str, *roots: object, package: str = "") -> None:
        """Count the roots and everything that they refer to, except objects of this project's other packages."""
        pending: list[Any] = list(roots)
        while pending:
            each = pending.pop()
            if each is None or id(each) in self._seen or isinstance(each, NOT_DATA):
                continue
            if package and (module := str(type(each).__module__)).startswith("setpoint") and package not in module:
                continue
            self.add(owner, (each,))
            pending += gc.get_referents(each)

    def print(self, pods: int, resident: int) -> None:
        known = sum(self.bytes.values())
        for owner, size in self.bytes.items():
            print(f"{owner:52} {self.count[owner]:9} {size >> 10:9} KiB {size / pods / 1024:7.2f} KiB a Pod")
        print(f"{'counted':52} {'':9} {known >> 10:9} KiB {known / pods / 1024:7.2f} KiB a Pod")
        print(f"{'resident, more than before the Pods':52} {'':9} {resident >> 10:9} KiB", end="")
        print(f" {resident / pods / 1024:7.2f} KiB a Pod")


def resource_of(key: str) -> str:
    name = "/".join(key.split("/", 2)[:2])
    return name if name in NAMED else "others"


def account_for(every: list[object]) -> Account:
    """Count the objects of this process. The order decides who is charged for what several hold."""
    account = Account()
    account.skip(every)
    for history in [each for each in every if isinstance(each, History)]:
        count_history(account, history)
    count_caches(account, [each for each in every if isinstance(each, ResourceCache)])
    for informer in [each for each in every if isinstance(each, Informer)]:
        account.add("informers: dicts and keys", [informer.items, *informer.items])
        account.walk("informers: objects of their own", *informer.items.values())
        account.walk("informers: indexes", *[index for _, index in informer._indexes.values()])
    for recorder in [each for each in every if isinstance(each, EventRecorder)]:
        account.walk("Events: correlation", recorder._correlator)
        account.walk("Events: queue", recorder.write_queue._queued)
    for package in PACKAGES:
        for each in every:
            if str(type(each).__module__).startswith(package):
                account.walk(f"objects of {package} and what they hold", each, package=package)
    return account


def count_history(account: Account, history: History) -> None:
    state, log = history.state, history._log
    for kv in state.values():
        count_value(account, "store: current", kv)
    account.add("store: keys and KeyValues", [state, *state, *state.values()])
    past = [each for event in log for each in (event.before, event.now) if each is not None]
    for kv in past:
        count_value(account, "history:", kv)
    account.add("history: events", [log, *log, *past])
    account.walk("history: causes", history._causes)
    account.walk("history: indexes", history._index, history._keys, history._key_indexes, history._packer)


def count_value(account: Account, owner: str, kv: KeyValue) -> None:
    if kv.compressed is None:
        account.add(f"{owner} bytes of {resource_of(kv.key)}", (kv.value,))
    else:
        account.add(f"{owner} compressed bytes of {resource_of(kv.key)}", (kv.compressed,))
        account.add("store: bases of compressed bytes", (kv.base,))


def count_caches(account: Account, caches: list[ResourceCache]) -> None:
    entries = [(resource_of(cache.prefix), entry) for cache in caches for entry in cache._entries.values()]
    account.add("watch cache: dicts and entries", [cache._entries for cache in caches])
    account.add("watch cache: dicts and entries", [entry for _, entry in entries])
    account.add("watch cache: bytes", [entry.value_in_memory for _, entry in entries])
    account.walk("watch cache: order of keys", *[cache._keys for cache in caches])
    for resource, entry in entries:
        account.walk(f"watch cache: decoded {resource}", entry.obj_in_memory, entry.whole)
        account.walk("watch cache: other forms", entry.derived)
        if entry._fields is not None:
            account.add("watch cache: selectable fields", (entry._fields,))
            account.walk("watch cache: selectable fields", entry._fields[1])


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ApiServerConfig(Path(directory), port=0)
        async with cluster(config, nodes=options.nodes) as running:
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
                before = resident_now()
                await build(client, starts, options.pods, options.set)
                await asyncio.sleep(options.settle)
                resident = resident_now() - before
                gc.unfreeze()  # the collector does not list frozen objects
                account_for(gc.get_objects()).print(options.pods, resident)
                following.cancel()
                sys.stdout.flush()
                shutil.rmtree(directory)
                os._exit(0)  # the walk has taken longer than the Leases of the components last


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=300)
    parser.add_argument("--pods", type=int, default=6000)
    parser.add_argument("--set", type=int, default=500)
    parser.add_argument("--settle", type=int, default=30)
    uvloop.run(main(parser.parse_args()))
