"""A manager runs what was added, and what is deferred until a first object appears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from stopped_clock import settle

from setpoint.client.resources import builtin
from setpoint.controllers.builtin import CONTROLLERS, DEFERRED_UNTIL
from setpoint.reconcile import Manager
from setpoint.system import RandomIds

MAPS, SECRETS = builtin("configmaps"), builtin("secrets")
SPACE = "managed"


def a_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": SPACE}, "data": {}}


class Follower:
    """Records the objects it observed, and whether the cache of another kind was synced when it started."""

    def __init__(self, manager: Manager) -> None:
        self.observed: list[str] = []
        self.began_synced = False
        self._secrets = manager.informer(SECRETS)
        manager.informer(MAPS).add_handler(self._changed)

    def _changed(self, _: object, new: dict[str, Any] | None) -> None:
        if new is not None and new["metadata"]["namespace"] == SPACE:
            self.observed.append(new["metadata"]["name"])

    async def run(self) -> None:
        self.began_synced = self._secrets.synced.is_set()
        await asyncio.Event().wait()


@asynccontextmanager
async def managing(server: Any, *there: str) -> AsyncIterator[list[Follower]]:
    """Yield the followers that were built; empty until a ConfigMap in this namespace exists."""
    await server.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    for name in there:
        await server.client.create(a_map(name))
    manager, built = Manager(server.client, server.clock, RandomIds(1)), list[Follower]()

    def build() -> Follower:
        built.append(Follower(manager))
        return built[-1]

    is_ours = (MAPS, lambda found: found["metadata"]["namespace"] == SPACE)
    manager.add_when([is_ours], build)
    running = asyncio.ensure_future(manager.run())
    await manager.ready.wait()
    try:
        yield built
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_deferred_runnable_is_built_with_the_first_object(local_server: Any) -> None:
    async with managing(local_server) as built:
        await settle()
        assert built == []
        await local_server.client.create(a_map("one"))
        await settle()
        await local_server.client.create(a_map("two"))
        await settle()
        (follower,) = built
        assert follower.observed == ["one", "two"]
        assert follower.began_synced


async def test_a_deferred_runnable_with_existing_objects_runs_when_the_manager_is_ready(local_server: Any) -> None:
    async with managing(local_server, "one", "two") as built:
        (follower,) = built
        assert sorted(follower.observed) == ["one", "two"]
        await settle()
        assert follower.began_synced


def test_an_unknown_resource_cannot_be_deferred_on() -> None:
    assert set(DEFERRED_UNTIL) <= set(CONTROLLERS)
