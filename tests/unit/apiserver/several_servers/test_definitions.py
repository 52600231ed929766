"""CustomResourceDefinitions through several servers: each serves what was accepted anywhere, at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from custom_resource_harness import CRDS, FOOS, definition, foo, version
from server_harness import settle
from several_servers import MaintainedServer, advance

Pair = tuple[MaintainedServer, MaintainedServer]
FOO_DEFINITION = f"{CRDS}/foos.example.com"


async def established(server: MaintainedServer, name: str = "foos.example.com") -> dict[str, Any]:
    for _ in range(200):
        found: dict[str, Any] = (await server.get(f"{CRDS}/{name}")).json
        if server.condition(found, "Established") == "InitialNamesAccepted":
            return found
        await settle()
    raise AssertionError(found["status"])


def put_behind(server: MaintainedServer) -> None:
    """Hold everything back from this server until its next request asks for it; then it needs some time to serve a
    definition."""
    store, synced = server.view, type(server.view).sync
    store.hold()
    loop = server.api.parts.definitions._loop
    process = loop._sync

    async def slowly(name: str) -> float | None:
        await settle(100)
        return await process(name)

    loop._sync = slowly

    async def sync() -> int:
        store.release()
        return await synced(store)

    store.sync = sync  # type: ignore[method-assign]


@pytest.mark.parametrize("leading", [True, False])
async def test_a_definition_made_through_any_server_is_served_by_all(pair: Pair, leading: bool) -> None:
    first, second = pair if leading else pair[::-1]
    if leading:
        put_behind(second)
    await first.make(CRDS, definition())
    await established(first)
    made = await second.make(FOOS, foo("f"))
    assert (await first.get(f"{FOOS}/f")).json == made
    watchers = [await server.watch(f"{FOOS}?resourceVersion={made['metadata']['resourceVersion']}") for server in pair]
    await second.patch(f"{FOOS}/f", {"spec": {"a": 1}})
    await settle(50)
    assert [watcher.summary for watcher in watchers] == [[("MODIFIED", "f")]] * 2


@pytest.mark.parametrize("path", [f"{FOOS}?resourceVersion=0", "/apis/example.com/v1", "/openapi/v3"])
async def test_reads_that_need_no_present_state_find_a_new_definition(pair: Pair, path: str) -> None:
    one, other = pair
    put_behind(other)
    await one.make(CRDS, definition())
    await established(one)
    reply = await other.get(path)
    assert reply.status == 200
    if path == "/openapi/v3":
        assert "apis/example.com/v1" in reply.json["paths"]


@pytest.mark.parametrize("leading", [True, False])
async def test_a_changed_schema_counts_at_once(pair: Pair, leading: bool) -> None:
    first, second = pair if leading else pair[::-1]
    await first.make(CRDS, definition())
    await established(first)
    await second.make(FOOS, foo("f", {"a": "text"}))
    number = version(spec={"type": "object", "properties": {"a": {"type": "integer"}}})
    put_behind(second)
    assert (await first.patch(FOO_DEFINITION, {"spec": {"versions": [number]}})).status == 200
    assert (await second.post(FOOS, foo("g", {"a": "text"}))).status == 422
    assert (await second.post(FOOS, foo("g", {"a": 1}))).status == 201


@pytest.mark.parametrize("leading", [True, False])
async def test_a_deleted_definition_is_gone_everywhere_at_once(pair: Pair, leading: bool) -> None:
    first, second = pair if leading else pair[::-1]
    await first.make(CRDS, definition())
    await established(first)
    await second.make(FOOS, foo("f"))
    assert (await first.delete(FOO_DEFINITION)).status == 200
    for _ in range(100):
        if (await first.get(FOO_DEFINITION)).status == 404:
            break
        await advance(0.1, *pair)
    put_behind(second)
    assert (await second.get(FOOS)).status == 404
    assert (await first.get(FOOS)).status == 404
    await first.make(CRDS, definition())
    await established(second)
    for server in pair:
        assert (await server.get(FOOS)).json["items"] == []


async def test_a_definition_that_is_being_deleted_accepts_no_objects(pair: Pair) -> None:
    one, other = pair
    await one.make(CRDS, definition())
    await established(one)
    await other.make(FOOS, foo("f", metadata={"finalizers": ["example.com/wait"]}))
    put_behind(other)
    assert (await one.delete(FOO_DEFINITION)).status == 200
    for _ in range(100):
        if one.condition((await one.get(FOO_DEFINITION)).json, "Terminating") == "InstanceDeletionInProgress":
            break
        await settle()
    replies = [await server.post(FOOS, foo("g")) for server in (other, one)]
    assert [reply.status for reply in replies] == [403, 403]


async def test_of_two_definitions_with_the_same_names_one_is_accepted(pair: Pair) -> None:
    for attempt in range(5):
        group = f"g{attempt}.example.com"
        first = definition(plural="foos", kind="Foo", group=group, names={"shortNames": ["f"]})
        second = definition(plural="bars", kind="Foo", group=group, names={"shortNames": ["f"]})
        await asyncio.gather(pair[attempt % 2].make(CRDS, first), pair[(attempt + 1) % 2].make(CRDS, second))
        await advance(0.5, *pair)
        accepted = [
            pair[0].condition((await pair[0].get(f"{CRDS}/{plural}.{group}")).json, "NamesAccepted")
            for plural in ("foos", "bars")
        ]
        assert sorted(accepted) == ["ListKindConflict", "NoConflicts"]


async def test_only_the_leading_server_writes_definitions(pair: Pair) -> None:
    """And what it had not finished is finished by the next one."""
    one, other = pair
    await advance(3, *pair)
    await one.kill()
    await other.make(CRDS, definition())
    await advance(5, other)
    assert not (await other.get(FOO_DEFINITION)).json["status"].get("conditions")
    assert (await other.get(FOOS)).status == 404
    await advance(14, other)
    await established(other)
    assert (await other.get(FOOS)).status == 200
