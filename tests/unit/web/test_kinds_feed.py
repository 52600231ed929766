"""The feed `kinds`: discovery and counts, with a real API server."""

from __future__ import annotations

import asyncio

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.client import Client, Impersonation
from setpoint.client.discovery import Discovery
from setpoint.kinds.catalog import Resource
from setpoint.meta.clock import Clock
from setpoint.meta.errors import BadRequest
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.feeds import kinds

CRONTAB = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ],
    },
}


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


async def settled(server: LocalServer, seconds: float) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
    await server.clock.advance(seconds)
    for _ in range(400):
        await asyncio.sleep(0)


async def test_counts_the_objects_of_each_kind_and_finds_custom_ones(local_server: LocalServer) -> None:
    client, state = local_server.client, FeedState()
    for name in "abc":
        await client.create(config_map(name))
    context = PageContext(client, local_server.clock, "", "admin", "")
    async with child_tasks(kinds.run(context, {"namespace": "default", "counts": True}, state)):
        await settled(local_server, 0)
        assert state.is_synced
        assert state.items["apps.deployments"] == {
            "group": "apps",
            "version": "v1",
            "resource": "deployments",
            "kind": "Deployment",
            "singular": "deployment",
            "shortNames": ["deploy"],
            "categories": ["all"],
            "namespaced": True,
            "verbs": state.items["apps.deployments"]["verbs"],
            "count": 0,
        }
        assert state.items["configmaps"]["count"] == 3
        assert state.items["namespaces"]["count"] == 4 and "bindings" not in state.items
        before = state.changes
        await client.delete(("v1", "ConfigMap"), "b", "default")
        await settled(local_server, 1)
        assert state.items["configmaps"]["count"] == 2 and state.changes == before + 1
        await client.create(CRONTAB)
        await settled(local_server, 1)
        assert state.items["apiextensions.k8s.io.customresourcedefinitions"]["count"] == 1


class SlowDiscovery(Discovery):
    """Discovery of a server that is busy."""

    def __init__(self, client: Client, clock: Clock) -> None:
        super().__init__(client.sender.document)
        self._clock = clock
        self.added: tuple[Resource, ...] = ()

    async def resources(self, *, fresh: bool = False) -> tuple[Resource, ...]:
        await self._clock.sleep(2.0)
        return *await super().resources(fresh=fresh), *self.added


async def test_a_busy_server_is_asked_for_new_kinds_soon_again(local_server: LocalServer) -> None:
    client, clock, state = local_server.client, local_server.clock, FeedState()
    client.discovery = discovery = SlowDiscovery(client, clock)
    async with child_tasks(kinds.run(PageContext(client, clock, "", "admin", ""), {}, state)):
        await settled(local_server, 2)
        assert state.is_synced
        discovery.added = (
            Resource("stable.example.com", "v1", "CronTab", "crontabs", "crontab", True, verbs=("list",)),
        )
        await settled(local_server, 5)
        await settled(local_server, 2)
        assert "stable.example.com.crontabs" in state.items


async def test_a_kind_that_the_user_may_not_list_has_no_count(local_server: LocalServer) -> None:
    client = local_server.client.named("page", Impersonation("ann", groups=("system:authenticated",)))
    state = FeedState()
    context = PageContext(client, local_server.clock, "/at/5", "ann", "")
    await kinds.run(context, {"counts": True}, state)  # the past does not change: the feed ends
    assert state.items["pods"]["count"] is None and state.is_synced


@pytest.mark.parametrize("args", [{"namespace": "a/b"}, {"namespace": 3}, {"counts": "yes"}])
async def test_refuses_wrong_arguments(local_server: LocalServer, args: dict[str, object]) -> None:
    context = PageContext(local_server.client, local_server.clock, "", "admin", "")
    with pytest.raises(BadRequest):
        await kinds.run(context, args, FeedState())
