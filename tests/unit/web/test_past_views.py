"""Views of a past moment have the durations of then."""

from __future__ import annotations

from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer
from page_harness import ADMIN, PageHarness
from stopped_clock import settle

from setpoint.client import Client
from setpoint.client.past import logical_transport
from setpoint.client.resources import builtin
from setpoint.tasks import child_tasks
from setpoint.web.catalog import find_feed
from setpoint.web.sessions import PageUser
from setpoint.web.tab_user import TabUser

HELD = "it has been in deletion for 10s"
ARGS = {"version": "v1", "resource": "configmaps", "namespace": "default"}


@pytest.mark.parametrize(
    ("feed", "args", "key", "note"),
    [
        ("objects", ARGS, "default/held", lambda item: item["note"]),
        ("object", {**ARGS, "name": "held"}, "loop", lambda item: item["drift"][0]["text"]),
        ("chain", {**ARGS, "name": "held"}, "/configmaps/default/held", lambda item: item["note"]),
    ],
)
async def test_an_object_in_deletion(local_server: LocalServer, feed: str, args: Any, key: str, note: Any) -> None:
    client, clock = local_server.client, local_server.clock
    metadata = {"name": "held", "namespace": "default", "finalizers": ["example.com/wait"]}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await client.delete(builtin("configmaps"), "held", "default")
    await clock.advance(10)
    metadata = {"name": "other", "namespace": "default"}
    made = await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await clock.advance(3600)

    def logical_client(user: PageUser, cluster: str) -> Client:
        return Client(logical_transport(client.sender.transport, cluster), clock)

    harness, state = PageHarness(logical_client), FeedState()
    context = harness.page.context(TabUser(ADMIN), f"/at/{made['metadata']['resourceVersion']}", "")
    run = find_feed(feed)
    assert run is not None

    async def follow() -> None:
        await run(context, args, state)

    async with child_tasks(follow()):
        while not state.is_synced:
            await settle()
        assert note(state.items[key]) == HELD
    await harness.stop()
