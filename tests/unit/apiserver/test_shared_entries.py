"""Clusters that start from the same state share decoded objects, and nothing that one of them writes or derives."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from setpoint.apiserver.shared_entries import SharedEntries
from setpoint.apiserver.watch_cache import ResourceCache
from setpoint.client.resources import builtin
from setpoint.cluster.components import ComponentOptions
from setpoint.cluster.embedded import EmbeddedCluster, EmbeddedOptions, embedded_cluster
from setpoint.store.interface import Delete, Put
from setpoint.store.memory import MemoryStore
from setpoint.system import RandomIds
from setpoint.testing import virtual
from setpoint.testing.snapshot import first_state
from setpoint.testing.virtual_time import VirtualClock

PREFIX = "core/configmaps/"
ROLES = "rbac.authorization.k8s.io/clusterroles/"
CRDS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")


def value(name: str, text: str) -> bytes:
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    return orjson.dumps({"metadata": meta, "data": {"v": text}})


async def start_state(names: str) -> tuple[MemoryStore, SharedEntries]:
    store = MemoryStore()
    for name in names:
        await store.txn([Put(f"{PREFIX}default/{name}", value(name, "start"))])
    return store, SharedEntries(store.entries().values())


async def cache_of(store: MemoryStore, shared: SharedEntries) -> ResourceCache:
    cache = ResourceCache(PREFIX, store, True, shared.entry_of)
    await cache.start()
    return cache


def content(cache: ResourceCache) -> dict[str, str]:
    return {entry.obj["metadata"]["name"]: entry.obj["data"]["v"] for entry in cache.scan()}


async def test_an_object_is_decoded_once_for_all_clusters() -> None:
    store, shared = await start_state("ab")
    first, second = [await cache_of(store.fork(), shared) for _ in range(2)]
    for one, other in zip(first.scan(), second.scan(), strict=True):
        assert one is not other and one.obj is other.obj
        one.whole = {"kind": "ConfigMap", "apiVersion": "v1", **one.obj}
        assert other.whole is one.whole


async def test_what_is_derived_is_not_shared() -> None:
    """It depends on the definitions of a cluster: versions, defaults, selectable fields."""
    store, shared = await start_state("a")
    first, second = [next((await cache_of(store.fork(), shared)).scan()) for _ in range(2)]
    assert first.derive("example.com/v2", lambda _: "of the first") == "of the first"
    assert not second.has_derived("example.com/v2")
    assert second.derive("example.com/v2", lambda _: "of the second") == "of the second"
    assert first.fields(lambda _: {"color": "red"}) == {"color": "red"}
    assert second.fields(lambda _: {"color": "blue"}) == {"color": "blue"}


async def test_a_later_state_shares_what_did_not_change() -> None:
    store, base = await start_state("ab")
    later = store.fork()
    await later.txn([Put(f"{PREFIX}default/b", value("b", "changed"))])
    shared = SharedEntries(later.entries().values(), base)
    before, after = await cache_of(store.fork(), base), await cache_of(later.fork(), shared)
    same, changed = (tuple(cache.scan()) for cache in (before, after))
    assert same[0].obj is changed[0].obj
    assert (same[1].obj["data"], changed[1].obj["data"]) == ({"v": "start"}, {"v": "changed"})


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from("abcd"), st.sampled_from(["", "1", "2"])),
        max_size=30,
    )
)
def test_a_write_never_shows_in_another_cluster(writes: list[tuple[int, str, str]]) -> None:
    """Clusters start before and after writes of others; an empty text deletes."""

    async def scenario() -> None:
        store, shared = await start_state("abc")
        stores = [store.fork() for _ in range(3)]
        caches: dict[int, ResourceCache] = {}
        wanted = [dict.fromkeys("abc", "start") for _ in range(3)]
        for cluster, name, text in writes:
            if cluster not in caches:
                caches[cluster] = await cache_of(stores[cluster], shared)
                assert content(caches[cluster]) == wanted[cluster]
            if text:
                await stores[cluster].txn([Put(f"{PREFIX}default/{name}", value(name, text))])
                wanted[cluster][name] = text
            elif name in wanted[cluster]:
                await stores[cluster].txn([Delete(f"{PREFIX}default/{name}")])
                del wanted[cluster][name]
            for number, cache in caches.items():
                assert content(cache) == wanted[number]
        assert content(await cache_of(store.fork(), shared)) == dict.fromkeys("abc", "start")

    asyncio.run(scenario())


def widget_definition(color: str) -> dict[str, Any]:
    """Return a definition whose first version has a default, and whose second one has another."""

    def version(name: str, default: str, *, storage: bool) -> dict[str, Any]:
        properties = {"spec": {"type": "object", "properties": {"color": {"type": "string", "default": default}}}}
        schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
        return {"name": name, "served": True, "storage": storage, "schema": schema}

    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": names,
            "versions": [version("v1", color, storage=True), version("v2", color, storage=False)],
        },
    }


async def colors(cluster: EmbeddedCluster) -> set[str]:
    found = [await cluster.client.list(("example.com", version, "widgets")) for version in ("v1", "v2")]
    return {item["spec"]["color"] for widgets in found for item in widgets.items}


@virtual()
async def test_clusters_from_one_state_are_independent(virtual_time: VirtualClock) -> None:
    options = EmbeddedOptions(ComponentOptions(nodes=0, controllers=(), scheduler=False))
    ids = RandomIds(1)
    async with embedded_cluster(virtual_time, ids, options, await first_state()) as origin:
        await origin.client.create(widget_definition("red"))
        await virtual_time.sleep(5)
        widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
        await origin.client.create(widget)
        state = origin.state()
        state = type(state)(state.store, state.digest, SharedEntries(origin.store.entries().values(), state.shared))
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(embedded_cluster(virtual_time, ids, options, state)) for _ in range(2)
        ]
        roles = [tuple(each.api.resources.caches[ROLES].scan()) for each in (first, second)]
        assert all(one.obj is other.obj for one, other in zip(*roles, strict=True)), "initial objects are shared"
        await first.client.patch(
            builtin("clusterroles", "rbac.authorization.k8s.io"), "view", {"metadata": {"labels": {"x": "y"}}}
        )
        changed, same = [
            (await each.client.get(builtin("clusterroles", "rbac.authorization.k8s.io"), "view"))["metadata"]
            for each in (first, second)
        ]
        assert changed["labels"]["x"] == "y" and "x" not in same["labels"]
        # Defaults and versions of custom resources are those of each cluster.
        assert await colors(first) == await colors(second) == {"red"}
        await first.client.update(
            {**widget_definition("blue"), "metadata": (await first.client.get(CRDS, "widgets.example.com"))["metadata"]}
        )
        await virtual_time.sleep(5)
        plain = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "plain"}, "spec": {}}
        for each in (first, second):
            await each.client.create(plain)
        assert await colors(first) == {"red", "blue"} and await colors(second) == {"red"}
