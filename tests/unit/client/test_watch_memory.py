"""The memory of clients within the process and of their open watches."""

from __future__ import annotations

import asyncio
import gc
import sys

import pytest
from local_server import TOKEN, LocalServer
from mutation_detector import MutationDetector

from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.request_context import RequestContext
from setpoint.client import Client
from setpoint.client.inprocess import InProcessTransport, SharingTransport
from setpoint.client.interface import WatchStream
from setpoint.client.resources import builtin
from setpoint.meta.objects import Obj
from setpoint.reconcile.informer import Informer

CONFIG_MAPS = builtin("configmaps")


@pytest.fixture
def sharing(local_server: LocalServer) -> Client:
    return Client(SharingTransport(local_server.entrance, TOKEN), local_server.clock, user_agent="tests")


def config_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def forget_detected() -> None:
    """Let the fixture of all tests that keeps every entry forget them."""
    gc.collect()
    for each in gc.get_objects():
        if isinstance(each, MutationDetector):
            each.decoded.clear()


def entries(key: str) -> list[Entry]:
    forget_detected()
    return [each for each in gc.get_objects() if isinstance(each, Entry) and each.key == key]


async def opened(client: Client, count: int) -> list[WatchStream]:
    watches: list[WatchStream] = [await client.watch(CONFIG_MAPS, "default").__aenter__() for _ in range(count)]
    await settled()
    return watches


async def test_each_watch_has_one_task_and_no_request(sharing: Client, local_server: LocalServer) -> None:
    watches = await opened(sharing, 1)
    gc.collect()
    tasks, requests = len(asyncio.all_tasks()), _requests()
    watches += await opened(sharing, 10)
    gc.collect()
    assert len(asyncio.all_tasks()) == tasks + 10
    assert _requests() <= requests
    assert len(local_server.api.resources.timers) == 11
    for watch in watches:
        watch.close()
    await settled()
    assert len(local_server.api.resources.timers) == 0
    assert len(asyncio.all_tasks()) == tasks - 2  # that of the first watch, and that of the timers


def _requests() -> int:
    return sum(isinstance(each, RequestContext) for each in gc.get_objects())


@pytest.mark.parametrize("transport", [SharingTransport, InProcessTransport])
async def test_a_watch_does_not_keep_the_objects_with_which_it_began(
    local_server: LocalServer, transport: type[InProcessTransport]
) -> None:
    client = Client(transport(local_server.entrance, TOKEN), local_server.clock, user_agent="tests")
    name = f"began-{transport.__name__.lower()}"  # no other test of the process has it
    await client.create(config_map(name, x="1"))
    async with client.watch(CONFIG_MAPS, "default") as watch:
        assert (await anext(watch)).object["data"] == {"x": "1"}
        for number in range(2):
            await client.patch(CONFIG_MAPS, name, {"data": {"x": f"changed {number}"}}, "default")
            await anext(watch)
        await settled()
        assert len(entries(f"core/configmaps/default/{name}")) == 1


async def test_an_informer_does_not_keep_the_last_deleted_object(sharing: Client, local_server: LocalServer) -> None:
    informer: Informer[Obj] = Informer(sharing, CONFIG_MAPS, local_server.clock)
    deleted: list[Obj] = []
    informer.add_handler(lambda old, new: deleted.append(old) if new is None and old is not None else None)
    await sharing.create(config_map("a"))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(informer.run())
        await informer.synced.wait()
        await sharing.delete(CONFIG_MAPS, "a", "default")
        await settled()
        forget_detected()
        count = sys.getrefcount(deleted[0])
        assert count == 2  # that of the list, and that of the argument
        running.cancel()


async def test_a_watch_that_is_closed_before_it_begins_is_forgotten(sharing: Client, local_server: LocalServer) -> None:
    watch = await sharing.watch(CONFIG_MAPS, "default").__aenter__()
    watch.close()
    await settled()
    assert not local_server.entrance._pipes


async def test_clients_of_equal_servers_share_the_discovered_resources(
    sharing: Client, local_server: LocalServer
) -> None:
    other = Client(SharingTransport(local_server.entrance, TOKEN), local_server.clock, user_agent="others")
    first, second = await sharing.discovery.resources(), await other.discovery.resources(fresh=True)
    assert len(first) == len(second) > 50
    assert all(one is another for one, another in zip(first, second, strict=True))
