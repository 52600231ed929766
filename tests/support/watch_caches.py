"""A watch cache of Pods on a memory store, without a server."""

from __future__ import annotations

import orjson

from setpoint.apiserver.cache_entry import Expected
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.meta.objects import Obj
from setpoint.store.interface import Put
from setpoint.store.memory import MemoryStore

STAMP = b'{"metadata":{"name":"%b","uid":"u","resourceVersion":"'


def pod(name: str, node: str) -> Obj:
    return {
        "metadata": {"name": name, "uid": "u", "labels": {"app": "web"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/app:1",
                    "env": [{"name": f"V{number}", "value": str(number)} for number in range(50)],
                }
            ],
            "nodeName": node,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


async def write(cache: ResourceCache, store: MemoryStore, obj: Obj) -> None:
    """Write an object as the server does, which announces the decoded form to the cache."""
    name = obj["metadata"]["name"]
    stored = {**obj, "metadata": {"name": name, "uid": "u", "resourceVersion": "", **obj["metadata"]}}
    value, stamp = orjson.dumps(stored), len(STAMP % name.encode())
    key = f"core/pods/default/{name}"
    cache.expect(key, Expected(obj, value, stamp))
    await store.txn([Put(key, value, stamp=stamp)])


async def cache_of(count: int) -> tuple[ResourceCache, MemoryStore]:
    store = MemoryStore()
    cache = ResourceCache("core/pods/", store, namespaced=True)
    await cache.start()
    for number in range(count):
        await write(cache, store, pod(f"web-7f-{number:03}", f"node-{number}"))
    return cache, store
