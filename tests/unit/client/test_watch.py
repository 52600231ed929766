"""Watches within the process: complete, in order, bounded."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from local_server import LocalServer

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.meta.errors import Expired
from setpoint.meta.objects import Obj

CONFIG_MAPS = builtin("configmaps")


def config_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def test_changes_arrive_in_order_and_once(client: Client) -> None:
    start = (await client.list(CONFIG_MAPS, "default")).resource_version
    async with client.watch(CONFIG_MAPS, "default", resource_version=start) as watch:
        made = await client.create(config_map("a"))
        changed = await client.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, "default")
        await client.delete(CONFIG_MAPS, "a", "default")
        events = [await anext(watch) for _ in range(3)]
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [event.object for event in events[:2]] == [made, changed]
    assert watch.resource_version == events[2].object["metadata"]["resourceVersion"]


async def test_a_watch_continues_from_a_resource_version(client: Client) -> None:
    start = (await client.list(CONFIG_MAPS, "default")).resource_version
    for number in range(5):
        await client.create(config_map(f"c{number}"))
    async with client.watch(CONFIG_MAPS, "default", resource_version=start) as first:
        seen = [(await anext(first)).object["metadata"]["name"] for _ in range(2)]
    async with client.watch(CONFIG_MAPS, "default", resource_version=first.resource_version) as second:
        seen += [(await anext(second)).object["metadata"]["name"] for _ in range(3)]
    assert seen == [f"c{number}" for number in range(5)]


async def test_a_compacted_revision_raises_expired(client: Client, local_server: LocalServer) -> None:
    for number in range(5):
        await client.create(config_map(f"c{number}"))
    await local_server.api.resources.store.compact(local_server.api.resources.store.revision)
    with pytest.raises(Expired):
        async for _ in client.watch(CONFIG_MAPS, "default", resource_version="1"):
            pass


async def test_a_rejected_watch_raises_the_servers_error(client: Client) -> None:
    from setpoint.meta.errors import BadRequest

    with pytest.raises(BadRequest):
        async for _ in client.watch(CONFIG_MAPS, "default", label_selector="!!"):
            pass


async def test_initial_events_end_with_a_bookmark(client: Client) -> None:
    await client.create(config_map("a"))
    seen = []
    async for event in client.watch(CONFIG_MAPS, "default", send_initial_events=True):
        seen.append(event)
        if event.type == "BOOKMARK":
            break
    assert [event.type for event in seen] == ["ADDED", "BOOKMARK"]
    assert seen[-1].object["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_the_server_ends_a_watch_at_its_timeout(client: Client, local_server: LocalServer) -> None:
    start = (await client.list(CONFIG_MAPS)).resource_version
    watch = client.watch(CONFIG_MAPS, resource_version=start, timeout_seconds=5)
    async with watch, asyncio.TaskGroup() as tasks:
        rest = tasks.create_task(_drain(watch))
        await local_server.clock.advance(10)
    assert [event.type for event in rest.result()] == ["BOOKMARK"]


async def _settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _drain(watch: Any) -> list[Any]:
    return [event async for event in watch]


async def test_closing_a_watch_releases_it_on_the_server(client: Client, local_server: LocalServer) -> None:
    entrance = local_server.entrance
    async with client.watch(CONFIG_MAPS, "default"):
        assert len(entrance._pipes) == 1
    await _settled()
    assert len(entrance._pipes) == 0


async def test_a_cancelled_reader_releases_its_watch(client: Client, local_server: LocalServer) -> None:
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(_drain(client.watch(CONFIG_MAPS, "default")))
        await _settled()
        task.cancel()
    await _settled()
    assert len(local_server.entrance._pipes) == 0


async def test_a_garbage_collected_watch_is_closed(client: Client, local_server: LocalServer) -> None:
    await client.create(config_map("a"))
    async for _ in client.watch(CONFIG_MAPS, "default"):
        break
    gc.collect()
    await _settled()
    assert len(local_server.entrance._pipes) == 0


async def test_a_slow_reader_is_disconnected_after_a_complete_prefix(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from setpoint.apiserver.handlers import watch as handler

    monkeypatch.setattr(handler, "_MAX_BUFFERED", 20_000)
    start = (await client.list(CONFIG_MAPS, "default")).resource_version
    async with client.watch(CONFIG_MAPS, "default", resource_version=start) as watch:
        for number in range(100):
            await client.create(config_map(f"c{number:03}", filler="x" * 500))
            await asyncio.sleep(0)
        names = [event.object["metadata"]["name"] async for event in watch]
    assert 10 < len(names) < 100
    assert names == [f"c{number:03}" for number in range(len(names))]


async def test_thousands_of_changes_arrive_complete(client: Client) -> None:
    start = (await client.list(CONFIG_MAPS, "default")).resource_version
    await client.create(config_map("a", n="0"))

    async def write() -> None:
        for number in range(1, 1000):
            await client.patch(CONFIG_MAPS, "a", {"data": {"n": str(number)}}, "default")

    seen: list[int] = []
    async with client.watch(CONFIG_MAPS, "default", resource_version=start) as watch, asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        async for event in watch:
            seen.append(int(event.object["data"]["n"]))
            if len(seen) == 1000:
                break
    assert seen == list(range(1000))
