"""The informer against a real API server misses and duplicates nothing, whatever happens to the watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from stopped_clock import settle

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.client.watch import Watch
from setpoint.meta.errors import InternalError
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer

MAPS = builtin("configmaps")
SPACE = "informed"


class Interruptible:
    """A reader whose watches can be interrupted, and which can be that of a server without initial events."""

    def __init__(self, client: Client, *, initial_events: bool = True) -> None:
        self._client = client
        self._initial_events = initial_events
        self.lists: list[str] = []
        self.initial: list[str] = []
        """The revisions of watches with initial events."""
        self.watches: list[Watch] = []

    async def list(self, *args: Any, **options: Any) -> Any:
        self.lists.append(options["resource_version"])
        return await self._client.list(*args, **options)

    def watch(self, *args: Any, **options: Any) -> Watch:
        if options["send_initial_events"]:
            self.initial.append(options["resource_version"])
            if not self._initial_events:
                options["resource_version_match"] = (
                    "unknown"  # answered with Invalid, as by a server that has no such watches
                )
        self.watches.append(self._client.watch(*args, **options))
        return self.watches[-1]

    def interrupt(self) -> None:
        stream = self.watches[-1]._stream
        assert stream is not None
        stream.close()


class Log:
    def __init__(self, informer: Informer[Obj]) -> None:
        self.entries: list[tuple[str, str, str]] = []
        informer.add_handler(self._record)

    def _record(self, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        name = (new or old or {})["metadata"]["name"]

        def x(obj: dict[str, Any] | None) -> str:
            return "-" if obj is None else obj["data"]["x"]

        self.entries.append((name, x(old), x(new)))


@asynccontextmanager
async def following(
    server: Any, *, initial_events: bool = True
) -> AsyncIterator[tuple[Informer[Obj], Interruptible, Log]]:
    client = server.client
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    await put(client, "early", "1")
    reader = Interruptible(client, initial_events=initial_events)
    informer = Informer[Obj](reader, MAPS, server.clock, namespace=SPACE)  # type: ignore[arg-type]
    log = Log(informer)
    task = asyncio.ensure_future(informer.run())
    await informer.synced.wait()
    await settle()
    yield informer, reader, log
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def put(client: Client, name: str, x: str, owner: str = "") -> None:
    meta: dict[str, Any] = {"name": name, "namespace": SPACE}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": owner, "controller": True}
        meta["ownerReferences"] = [reference]
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": x}}
    if any(item["metadata"]["name"] == name for item in (await client.list(MAPS, SPACE)).items):
        await client.update(made)
    else:
        await client.create(made)


async def test_existing_objects_come_first_and_changes_follow(local_server: Any) -> None:
    client = local_server.client
    async with following(local_server) as (informer, _, log):
        assert log.entries == [("early", "-", "1")]
        await put(client, "a", "1")
        await put(client, "a", "2")
        await client.delete(MAPS, "a", SPACE)
        await settle()
        assert log.entries[1:] == [("a", "-", "1"), ("a", "1", "2"), ("a", "2", "-")]
        assert list(informer.items) == [f"{SPACE}/early"]
        late = Log(informer)
        assert late.entries == [("early", "-", "1")]


async def test_an_interrupted_watch_resumes(local_server: Any) -> None:
    client, clock = local_server.client, local_server.clock
    async with following(local_server) as (_, reader, log):
        await put(client, "a", "1")
        await settle()
        reader.interrupt()
        await settle()
        await put(client, "a", "2")
        await client.delete(MAPS, "early", SPACE)
        await clock.advance(1)
        assert log.entries[1:] == [("a", "-", "1"), ("a", "1", "2"), ("early", "1", "-")]
        assert reader.initial == ["0"] and reader.lists == []
        assert len(reader.watches) == 2


async def test_watches_that_end_now_and_then_are_resumed_at_once(local_server: Any) -> None:
    """As when one server after the other is restarted."""
    client, clock = local_server.client, local_server.clock
    async with following(local_server) as (_, reader, log):
        for number in range(8):
            await clock.advance(11)
            reader.interrupt()
            await settle()
            await put(client, "a", str(number))
            await settle()
            assert log.entries[-1][2] == str(number)


async def test_watches_that_end_soon_are_resumed_with_backoff(local_server: Any) -> None:
    clock = local_server.clock
    async with following(local_server) as (_, reader, _):
        began, pauses = clock.monotonic(), []
        for number in range(2, 7):
            reader.interrupt()
            await settle()
            while len(reader.watches) < number:
                await clock.advance(0.125)
            pauses.append(clock.monotonic() - began)
            began = clock.monotonic()
        assert pauses == [0.25, 0.5, 0.875, 1.625, 3.25]  # 0.2, 0.4 and so on, rounded up


@pytest.mark.parametrize("initial_events", [True, False])
async def test_after_an_expired_revision_a_new_list_reports_the_differences(
    local_server: Any, initial_events: bool
) -> None:
    client, clock, store = local_server.client, local_server.clock, local_server.api.resources.store
    async with following(local_server, initial_events=initial_events) as (_, reader, log):
        await put(client, "stays", "1")
        await put(client, "changes", "1")
        await put(client, "again", "1")
        await settle()
        reader.interrupt()
        await settle()
        seen = len(log.entries)
        await client.delete(MAPS, "early", SPACE)
        await put(client, "changes", "2")
        await put(client, "changes", "3")
        await client.delete(MAPS, "again", SPACE)
        await put(client, "again", "2")
        await put(client, "new", "1")
        await store.compact(store.revision)
        await clock.advance(1)
        lists = reader.initial if initial_events else reader.lists
        assert lists == ["0", ""], "a watch from what is gone must lead to a fresh list"
        assert reader.initial == ["0", ""] if initial_events else ["0"], "a server that refused is not asked again"
        assert sorted(log.entries[seen:]) == sorted(
            [
                ("early", "1", "-"),
                ("changes", "1", "3"),
                ("again", "1", "-"),  # another object of the same name: a deletion and a creation
                ("again", "-", "2"),
                ("new", "-", "1"),
            ]
        )


class EndedWatch:
    """A watch with initial events of a server that accepts it, and reports in it that its storage cannot send them."""

    async def __aenter__(self) -> EndedWatch:
        return self

    async def __aexit__(self, *args: object) -> None:
        pass

    def __aiter__(self) -> EndedWatch:
        return self

    async def __anext__(self) -> Any:
        raise InternalError("the required storage feature RequestWatchProgress is disabled")


async def test_a_watch_that_cannot_send_initial_events_leads_to_a_list_at_once(
    local_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Interruptible.watch

    def refuse(self: Interruptible, *args: Any, **options: Any) -> Any:
        return EndedWatch() if options["send_initial_events"] else watch(self, *args, **options)

    monkeypatch.setattr(Interruptible, "watch", refuse)
    began = local_server.clock.monotonic()
    async with following(local_server) as (_, reader, log):
        assert local_server.clock.monotonic() == began
        assert reader.lists == ["0"]
        await put(local_server.client, "a", "1")
        await settle()
        assert log.entries == [("early", "-", "1"), ("a", "-", "1")]


async def test_objects_are_found_by_their_controller(local_server: Any) -> None:
    client = local_server.client
    async with following(local_server) as (informer, _, _log):
        await put(client, "mine", "1", owner="u1")
        await put(client, "free", "1")
        await settle()
        assert [item["metadata"]["name"] for item in informer.controlled_by("u1")] == ["mine"]
        assert {item["metadata"]["name"] for item in informer.orphans(SPACE)} == {"early", "free"}
        informer.add_index("x", lambda obj: [obj["data"]["x"]])
        await put(client, "free", "2")
        await settle()
        assert [item["metadata"]["name"] for item in informer.by_index("x", "2")] == ["free"]
        await client.delete(MAPS, "mine", SPACE)
        await settle()
        assert informer.controlled_by("u1") == []


async def test_a_failing_handler_does_not_affect_others(local_server: Any) -> None:
    async with following(local_server) as (informer, _, _log):

        def fail(old: object, new: object) -> None:
            raise RuntimeError("a bug")

        informer.add_handler(fail)
        last = Log(informer)
        await put(local_server.client, "a", "1")
        await settle()
        assert last.entries[-1] == ("a", "-", "1")


async def test_a_rejected_list_is_retried(local_server: Any) -> None:
    from setpoint.client import Impersonation

    nobody = local_server.client.named("nobody", Impersonation("nobody"))
    informer = Informer[Obj](nobody, MAPS, local_server.clock)
    task = asyncio.ensure_future(informer.run())
    await settle()
    assert not informer.synced.is_set()
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "maps"}, "rules": [rule]}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": "nobody"}],
    }
    await local_server.client.create(role)
    await local_server.client.create(binding)
    await local_server.clock.advance(5)
    assert informer.synced.is_set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
