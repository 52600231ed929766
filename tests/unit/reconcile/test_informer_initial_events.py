"""Informers start with a watch that sends initial events, and list if a server does not send them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stopped_clock import settle

from setpoint.client import Client, ObjectList, Unreachable, WatchEvent
from setpoint.client.interface import INITIAL_EVENTS_END
from setpoint.client.resources import builtin
from setpoint.client.transport import EventStream
from setpoint.client.watch import Watch
from setpoint.meta.errors import ApiError, BadRequest, Forbidden, Invalid, MethodNotAllowed
from setpoint.meta.objects import Obj
from setpoint.reconcile import Informer
from setpoint.testing.virtual_time import VirtualClock, VirtualLoop

MAPS = builtin("configmaps")
SPACE = "default"


async def put(client: Client, name: str, x: str = "1") -> None:
    meta = {"name": name, "namespace": SPACE}
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": x}})


class Recording:
    """A reader that records the revisions of lists and of watches with initial events."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.lists: list[str] = []
        self.initial: list[str] = []

    async def list(self, *args: Any, **options: Any) -> ObjectList:
        self.lists.append(options["resource_version"])
        return await self._client.list(*args, **options)

    def watch(self, *args: Any, **options: Any) -> Watch:
        if options["send_initial_events"]:
            self.initial.append(options["resource_version"])
            return self.initial_watch(args, options)
        return self._client.watch(*args, **options)

    def initial_watch(self, args: tuple[Any, ...], options: dict[str, Any]) -> Watch:
        return self._client.watch(*args, **options)


class Refuses(Recording):
    """A reader of a server that answers watches with initial events with an error."""

    error: ApiError

    def initial_watch(self, args: tuple[Any, ...], options: dict[str, Any]) -> Watch:
        async def fail() -> EventStream:
            raise self.error

        return Watch(fail)


class Ignores(Recording):
    """A reader of a server that does not know the parameter: it sends the current objects, and no end of them."""

    def initial_watch(self, args: tuple[Any, ...], options: dict[str, Any]) -> Watch:
        return self._client.watch(*args, **{**options, "send_initial_events": False})


class EndsEarly(Recording):
    """A reader whose watches with initial events end after the first one."""

    def initial_watch(self, args: tuple[Any, ...], options: dict[str, Any]) -> Watch:
        watch = self._client.watch(*args, **options)
        assert watch._start is not None
        return ShortWatch(watch._start)


class ShortWatch(Watch):
    def __init__(self, start: Callable[[], Awaitable[EventStream]]) -> None:
        super().__init__(start)
        self._left = 1

    async def __anext__(self) -> WatchEvent:
        if not self._left:
            self.close()
        self._left -= 1
        return await super().__anext__()


class Following:
    """A running informer, and the changes of which it notified its handler."""

    def __init__(self, server: Any, reader: Recording) -> None:
        self.informer = Informer[Obj](reader, MAPS, server.clock, namespace=SPACE)  # type: ignore[arg-type]
        self.changes: list[tuple[str, str]] = []
        self.informer.add_handler(self._record)
        self._task = asyncio.ensure_future(self.informer.run())

    def _record(self, old: Obj | None, new: Obj | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        if name != "kube-root-ca.crt":
            self.changes.append((name, "deleted" if new is None else new["data"]["x"]))

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_one_request_suffices(local_server: Any) -> None:
    client, reader = local_server.client, Recording(local_server.client)
    await put(client, "a")
    following = Following(local_server, reader)
    await settle()
    assert following.informer.synced.is_set() and following.changes == [("a", "1")]
    await put(client, "b")
    await settle()
    assert following.changes == [("a", "1"), ("b", "1")]
    assert (reader.initial, reader.lists) == (["0"], [])
    await following.stop()


@pytest.mark.parametrize(
    "error",
    [
        Invalid("sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
        BadRequest("unknown parameter"),
        Forbidden("no watches"),
        MethodNotAllowed("the server does not allow this method on the requested resource"),
    ],
)
async def test_a_server_that_refuses_initial_events_is_listed(local_server: Any, error: ApiError) -> None:
    client, reader = local_server.client, Refuses(local_server.client)
    reader.error = error
    await put(client, "a")
    following = Following(local_server, reader)
    await settle()
    assert following.informer.synced.is_set()
    await put(client, "b")
    await settle()
    assert following.changes == [("a", "1"), ("b", "1")]
    assert (reader.initial, reader.lists) == (["0"], ["0"])
    await following.stop()


async def test_a_server_that_never_sends_the_end_is_listed_after_a_while(local_server: Any) -> None:
    client, clock, reader = local_server.client, local_server.clock, Ignores(local_server.client)
    await put(client, "a")
    following = Following(local_server, reader)
    await settle()
    await clock.advance(10)
    await put(client, "b")  # an event in between does not prolong the wait
    await clock.advance(4)
    assert not following.informer.synced.is_set() and following.changes == []
    await clock.advance(2)
    assert following.informer.synced.is_set()
    await put(client, "c")
    await settle()
    assert following.changes == [("a", "1"), ("b", "1"), ("c", "1")]
    assert (reader.initial, reader.lists) == (["0"], ["0"])
    await following.stop()


async def test_a_watch_that_ends_before_its_initial_events_is_followed_by_a_list(local_server: Any) -> None:
    client, reader = local_server.client, EndsEarly(local_server.client)
    await put(client, "a")
    await put(client, "b")
    following = Following(local_server, reader)
    await settle()
    assert following.informer.synced.is_set() and following.changes == [("a", "1"), ("b", "1")]
    assert (reader.initial, reader.lists) == (["0"], ["0"])
    await following.stop()


class Scripted:
    """A server whose objects change between requests, and whose streams fail as a script has it."""

    def __init__(self, changes: list[tuple[str, bool]], faults: list[str]) -> None:
        self._changes = iter(changes)
        self._faults = faults
        self.objects: dict[str, Obj] = {}
        self.history: list[tuple[int, WatchEvent]] = []
        self.revision = 1
        self.expired_before = 0

    def change(self) -> None:
        """Make the next change of the script, if there is one."""
        for name, deletes in self._changes:
            self.revision += 1
            meta = {"name": name, "namespace": SPACE, "uid": name, "resourceVersion": str(self.revision)}
            if name in self.objects:
                kind = "DELETED" if deletes else "MODIFIED"
            else:
                kind = "ADDED"
                meta["uid"] = f"{name}-{self.revision}"
            if kind != "ADDED":
                meta["uid"] = self.objects[name]["metadata"]["uid"]
            self.objects.pop(name, None)
            if kind != "DELETED":
                self.objects[name] = {"metadata": meta}
            self.history.append((self.revision, WatchEvent(kind, {"metadata": meta})))
            return

    async def list(self, *_: object, **__: object) -> ObjectList:
        self.change()
        if self._next_fault() == "refuse":
            raise Unreachable("the connection broke off")
        return ObjectList(list(self.objects.values()), str(self.revision))

    def watch(self, *_: object, resource_version: str, send_initial_events: bool, **__: object) -> ScriptedWatch:
        fault = self._next_fault()
        if fault == "refuse":
            raise Invalid("no initial events") if send_initial_events else Unreachable("no connection")
        self.change()
        if send_initial_events:
            events = [WatchEvent("ADDED", obj) for obj in self.objects.values()]
            seen = self.revision
            if fault != "silent":
                end = {"resourceVersion": str(seen), "annotations": {INITIAL_EVENTS_END: "true"}}
                events.append(WatchEvent("BOOKMARK", {"metadata": end}))
        else:
            events, seen = [], int(resource_version)
        return ScriptedWatch(self, events, seen, fault)

    def _next_fault(self) -> str:
        return self._faults.pop(0) if self._faults else ""


class ScriptedWatch:
    def __init__(self, server: Scripted, events: list[WatchEvent], seen: int, fault: str) -> None:
        self._server, self._events, self._seen, self._fault = server, events, seen, fault
        self._left = int(fault) if fault.isdigit() else -1
        self.resource_version = ""

    async def __aenter__(self) -> ScriptedWatch:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> ScriptedWatch:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        while True:
            if self._events:
                event = self._events.pop(0)
                break
            later = next(self._later(), None)
            if later is not None:
                self._seen, event = later
                break
            await asyncio.sleep(1)  # virtual
            self._server.change()
        self.resource_version = event.object["metadata"]["resourceVersion"]
        return event

    def _later(self) -> Iterator[tuple[int, WatchEvent]]:
        return (entry for entry in self._server.history if entry[0] > self._seen)


@settings(deadline=None)
@given(
    changes=st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12),
    faults=st.lists(st.sampled_from(["", "refuse", "silent", "0", "1", "2", "3"]), max_size=6),
)
def test_whatever_fails_the_cache_becomes_that_of_the_server(
    changes: list[tuple[str, bool]], faults: list[str]
) -> None:
    """The handler receives a possible history of each object."""

    async def scenario() -> None:
        server = Scripted(changes, list(faults))
        informer = Informer[Obj](server, ("v1", "ConfigMap"), VirtualClock())  # type: ignore[arg-type]
        known: dict[str, Obj] = {}

        def record(old: Obj | None, new: Obj | None) -> None:
            name = (new or old or {})["metadata"]["name"]
            before = known.pop(name, None)
            assert (before is None) == (old is None)
            if new is not None:
                assert before is None or before["metadata"]["uid"] == new["metadata"]["uid"]
                assert before is None or int(before["metadata"]["resourceVersion"]) < int(
                    new["metadata"]["resourceVersion"]
                )
                known[name] = new

        informer.add_handler(record)
        task = asyncio.ensure_future(informer.run())
        await asyncio.sleep(600)  # virtual
        assert informer.synced.is_set()
        held = {obj["metadata"]["name"]: obj for obj in informer.items.values()}
        assert held == known == server.objects
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario())
    finally:
        loop.close()
