"""The feed `objects`: rows with the server's own columns, for built-in and custom kinds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from feed_state import FeedState
from local_server import LocalServer

from setpoint.meta.errors import ApiError, BadRequest, NotFound
from setpoint.tasks import child_tasks
from setpoint.web.feed import PageContext
from setpoint.web.feeds import objects

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]},
}
TEAPOTS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "teapots.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "teapots", "singular": "teapot", "kind": "Teapot"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            },
        ],
    },
}


def deployment(name: str) -> dict[str, Any]:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": spec,
    }


async def settle() -> None:
    for _ in range(400):
        await asyncio.sleep(0)


def context(server: LocalServer) -> PageContext:
    return PageContext(server.client, server.clock, "", "admin", "")


async def test_rows_follow_the_objects(local_server: LocalServer) -> None:
    client, state = local_server.client, FeedState()
    await client.create(deployment("web"))
    args = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "default"}
    async with child_tasks(objects.run(context(local_server), args, state)):
        await settle()
        assert state.is_synced
        columns = state.items["columns"]
        names = [each["name"] for each in columns["columns"]]
        assert names[:2] == ["Name", "Ready"] and names[columns["age"]] == "Age"
        row = state.items["default/web"]
        assert row["ref"] == {
            "group": "apps",
            "version": "v1",
            "resource": "deployments",
            "kind": "Deployment",
            "namespace": "default",
            "name": "web",
        }
        assert row["cells"][:2] == ["web", "0/2"] and row["labels"] == {"app": "web"}
        assert (row["phase"], row["note"]) == ("acting", "deployment-controller has not observed it yet")
        await client.create(deployment("api"))
        await client.patch(("apps/v1", "Deployment"), "web", {"spec": {"replicas": 5}}, "default")
        await settle()
        assert state.items["default/web"]["cells"][1] == "0/5" and "default/api" in state.items
        await client.delete(("apps/v1", "Deployment"), "api", "default")
        await settle()
        assert sorted(state.items) == ["columns", "default/web"]


async def test_a_custom_kind_has_its_own_columns(local_server: LocalServer) -> None:
    client, state = local_server.client, FeedState()
    definitions = local_server.api.parts.definitions
    assert definitions is not None
    args = {"group": "example.com", "resource": "teapots", "selector": "size=2"}
    async with child_tasks(definitions.run()):
        await client.create(TEAPOTS)
        await settle()
    for name, size in (("a", 1), ("b", 2)):
        meta = {"name": name, "labels": {"size": str(size)}}
        await client.create(
            {"apiVersion": "example.com/v1", "kind": "Teapot", "metadata": meta, "spec": {"size": size}}
        )
    async with child_tasks(objects.run(context(local_server), args, state)):
        await settle()
        assert sorted(state.items) == ["/b", "columns"]
        columns = [each["name"] for each in state.items["columns"]["columns"]]
        assert dict(zip(columns, state.items["/b"]["cells"], strict=True))["Size"] == 2


async def test_lists_again_when_the_watch_has_expired(local_server: LocalServer) -> None:
    """Objects that were deleted while the feed was away disappear."""
    client, state = local_server.client, FeedState()
    await client.create(deployment("web"))
    ends = asyncio.Event()
    watch = client.sender.watch

    async def interrupted(path: str, query: str, *, accept: str = "") -> Any:
        stream = await watch(path, query, accept=accept)
        if ends.is_set():
            return stream

        class Ending:
            async def __anext__(self) -> Any:
                await ends.wait()
                stream.close()
                return "ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"}

            def close(self) -> None:
                stream.close()

        return Ending()

    client.sender.watch = interrupted  # type: ignore[method-assign]
    args = {"group": "apps", "version": "v1", "resource": "deployments", "namespace": "default"}
    async with child_tasks(objects.run(context(local_server), args, state)):
        await settle()
        await client.create(deployment("api"))
        await client.delete(("apps/v1", "Deployment"), "web", "default")
        await settle()
        assert "default/web" in state.items  # the watch delivers nothing
        ends.set()
        await settle()
        await local_server.clock.advance(1)
        await settle()
        assert sorted(state.items) == ["columns", "default/api"]


async def test_of_very_many_the_first_are_shown(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_OBJECTS", 4)
    monkeypatch.setattr(objects, "_PAGE", 2)
    client, state = local_server.client, FeedState()
    for number in range(6):
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"n{number}"}})
    async with child_tasks(objects.run(context(local_server), {"resource": "namespaces"}, state)):
        await settle()
        assert len(state.items) == 5 and state.items["columns"]["more"] == 6
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one-more"}})
        await settle()
        assert len(state.items) == 5 and state.items["columns"]["more"] == 7


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ({}, BadRequest),
        ({"resource": "teapots", "group": "example.com"}, NotFound),
        ({"resource": "pods", "namespace": "../x"}, BadRequest),
        ({"resource": "pods", "selector": "a in ("}, BadRequest),
        ({"resource": 7}, BadRequest),
    ],
)
async def test_bad_arguments_end_the_feed(local_server: LocalServer, args: Any, error: type[ApiError]) -> None:
    with pytest.raises(error):
        await objects.run(context(local_server), args, FeedState())
