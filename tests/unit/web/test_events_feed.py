"""The feed `events`, with a real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.client import Impersonation
from setpoint.meta.errors import Forbidden
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.feeds import events


def event(name: str, about: str, last: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": about},
        "reason": "BackOff",
        "type": "Warning",
        "message": "Back-off <b>",
        "source": {"component": "kubelet"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": f"2026-01-01T00:{last // 60:02}:{last % 60:02}Z",
        "count": 2,
        **fields,
    }


async def settled() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_follows_events_about_one_object(local_server: LocalServer) -> None:
    client, state = local_server.client, FeedState()
    await client.create(event("a", "web"))
    await client.create(event("b", "other"))
    context = PageContext(client, local_server.clock, "", "admin", "")
    async with child_tasks(events.run(context, {"namespace": "default", "kind": "Pod", "name": "web"}, state)):
        await settled()
        assert state.is_synced
        assert state.items == {
            "default/a": {
                "type": "Warning",
                "reason": "BackOff",
                "message": "Back-off <b>",
                "count": 2,
                "first": "2026-01-01T00:00:00Z",
                "last": "2026-01-01T00:00:00Z",
                "source": "kubelet",
                "revision": state.items["default/a"]["revision"],
                "about": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"},
            }
        }
        await client.create(event("c", "web", type="Normal"))
        await settled()
        assert state.items["default/c"]["revision"] > state.items["default/a"]["revision"] > 0
        await client.delete(("v1", "Event"), "a", "default")
        await settled()
        assert [*state.items] == ["default/c"]


async def test_shows_the_latest_of_many(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENTS", 150)
    state = FeedState()
    for number in range(200):
        await local_server.client.create(event(f"e{number:03}", "web", last=number))
    context = PageContext(local_server.client, local_server.clock, "", "admin", "")
    async with child_tasks(events.run(context, {}, state)):
        await settled()
        assert 50 <= len(state.items) <= 150 and "default/e199" in state.items and "default/e000" not in state.items


async def test_says_that_the_user_may_not_read_events(local_server: LocalServer) -> None:
    client = local_server.client.named("page", Impersonation("ann"))
    with pytest.raises(Forbidden):
        await events.run(PageContext(client, local_server.clock, "", "ann", ""), {}, FeedState())
