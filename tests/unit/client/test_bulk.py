"""`write_all`: the same results with one call of the server as with many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import pytest
from local_server import TOKEN, LocalServer

from setpoint import batching
from setpoint.apiserver.filters.authenticate import in_process_peer
from setpoint.client import Client
from setpoint.client.bulk import write_all
from setpoint.client.inprocess import InProcessTransport, SharingTransport
from setpoint.client.resources import builtin
from setpoint.client.run import Run, because, current_run
from setpoint.cluster.inprocess import InProcess
from setpoint.meta.cause import Claim, decode
from setpoint.meta.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from setpoint.meta.lease_term import Term
from setpoint.testing.link import Link, LinkedClient, Proceed, Write
from setpoint.wire.message import Answer, Request

MAPS, LEASES = builtin("configmaps"), builtin("leases", "coordination.k8s.io")

NewClient = Callable[..., Client]


class ObservedServer:
    """An API server that notes how many writes each call has."""

    def __init__(self, server: LocalServer) -> None:
        self.api = server.api
        self.widths: list[int] = []

    async def handle(self, request: Request) -> Answer:
        if request.method != "GET":
            self.widths.append(1)
        return await self.api.handle(request)

    async def handle_all(self, requests: Sequence[Request]) -> Sequence[Answer | Exception]:
        self.widths.append(len(requests))
        return await self.api.handle_all(requests)


@pytest.fixture
def server(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> ObservedServer:
    monkeypatch.setattr(batching, "_MAX_SECONDS", 3600.0)
    return ObservedServer(local_server)


@pytest.fixture
async def entrance(server: ObservedServer) -> AsyncIterator[InProcess]:
    async with InProcess(server.handle, server.handle_all) as entrance:
        yield entrance


@pytest.fixture
async def plain_entrance(server: ObservedServer) -> AsyncIterator[InProcess]:
    """One whose server has no bulk writes."""
    async with InProcess(server.handle) as entrance:
        yield entrance


def a_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


def admin(entrance: InProcess, local_server: LocalServer, **options: Any) -> Client:
    return Client(SharingTransport(entrance, TOKEN), local_server.clock, user_agent="tests", **options)


def of_user(entrance: InProcess, local_server: LocalServer, user: str, *groups: str) -> Client:
    transport = SharingTransport(entrance.for_peer(in_process_peer(user, groups)))
    return Client(transport, local_server.clock, user_agent=user)


@pytest.mark.parametrize("kind", ["bulk", "single", "text"])
async def test_results_do_not_depend_on_the_server(
    kind: str, local_server: LocalServer, server: ObservedServer, entrance: InProcess, plain_entrance: InProcess
) -> None:
    client = admin(plain_entrance if kind == "single" else entrance, local_server)
    if kind == "text":
        client = Client(InProcessTransport(entrance, TOKEN), local_server.clock, user_agent="tests")
    made = await client.create(a_map("made"))
    server.widths.clear()

    async def get_and_update() -> str:
        found = await client.get(MAPS, "made", "default")
        changed = await client.update({**found, "data": {"a": "1"}})
        return str(changed["data"]["a"])

    results: list[Any] = await write_all(
        [
            partial[Coroutine[Any, Any, Any]](client.create, a_map("one")),
            partial(client.create, a_map("made")),
            partial(client.create, a_map("Wrong_")),
            get_and_update,
            partial(client.delete, MAPS, "absent", "default"),
            partial(client.patch, MAPS, "one-more", {"data": {}}, "default"),
            partial(client.create, a_map("two")),
        ]
    )
    assert results[0]["metadata"]["name"] == "one" and results[6]["metadata"]["name"] == "two"
    assert results[3] == "1"
    kinds = [type(result) for result in results if isinstance(result, Exception)]
    assert kinds == [AlreadyExists, Invalid, NotFound, NotFound]
    assert "absent" in str(results[4])
    assert server.widths == ([7] if kind == "bulk" else [1] * 7)
    assert (await client.get(MAPS, "made", "default"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_each_write_has_the_cause_of_its_run(
    local_server: LocalServer, server: ObservedServer, entrance: InProcess
) -> None:
    client = admin(entrance, local_server)

    async def write(number: int) -> None:
        current_run.set(Run("teapots", "1f2e", number, f"default/pot-{number}", (number,)))
        because(f"reason {number}")
        created = await client.create(a_map(f"pot-{number}"))
        because("again")  # it is this write's own run, although others ran meanwhile
        await client.update({**created, "data": {"number": str(number)}})

    before = local_server.api.resources.store.revision
    assert await write_all([partial(write, number) for number in range(4)]) == [None] * 4
    assert server.widths == [4, 4] and current_run.get() is None
    claims = [decode(each.cause).claim for each in await local_server.api.resources.store.causes(before)]
    assert claims == [
        Claim(f"teapots/1f2e.{number}", f"default/pot-{number}", (number,), reason=reason or f"reason {number}")
        for reason in ("", "again")
        for number in range(4)
    ]


async def test_clients_with_different_rights_share_a_call(
    local_server: LocalServer, server: ObservedServer, entrance: InProcess
) -> None:
    masters = [of_user(entrance, local_server, f"user-{number}", "system:masters") for number in range(3)]
    clients = [*masters, of_user(entrance, local_server, "stranger")]
    results = await write_all([partial(each.create, a_map(f"m-{at}")) for at, each in enumerate(clients)])
    assert [type(result) for result in results] == [dict, dict, dict, Forbidden]
    assert "stranger" in str(results[3]) and server.widths == [4]
    store = local_server.api.resources.store
    users = [decode(each.cause).user for each in await store.causes(store.revision - 3)]
    assert users == ["user-0", "user-1", "user-2"]


class Terms:
    """A fence whose term a test sets."""

    def __init__(self, holder: str) -> None:
        self.holder = holder

    def term(self) -> Term:
        return Term("default", "leader", self.holder, 0)


async def test_writes_of_a_former_leader_are_refused(
    local_server: LocalServer, server: ObservedServer, entrance: InProcess
) -> None:
    client = admin(entrance, local_server)
    lease = {"metadata": {"name": "leader", "namespace": "default"}, "spec": {"holderIdentity": "me"}}
    await client.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
    me, other = (client.fenced(Terms(holder)) for holder in ("me", "other"))
    server.widths.clear()
    results = await write_all(
        [
            partial(me.create, a_map("one")),
            partial(other.create, a_map("two")),
            partial(me.create, a_map("three")),
        ]
    )
    assert [type(result) for result in results] == [dict, Conflict, dict] and server.widths == [3]


async def test_a_linked_client_sends_each_write_through_its_link(
    local_server: LocalServer, server: ObservedServer, entrance: InProcess
) -> None:
    link = Link("tester")
    client = LinkedClient(admin(entrance, local_server), link)
    seen: list[str] = []

    async def intercept(write: Write, proceed: Proceed) -> Any:
        seen.append(write.name)
        if write.name == "refused":
            raise ApiError("no", code=500, reason="InternalError")
        await asyncio.sleep(0)
        return await proceed()

    link.write_interceptor = intercept
    results = await write_all([partial(client.create, a_map(name)) for name in ("one", "refused", "two")])
    assert sorted(seen) == ["one", "refused", "two"]
    assert [type(result) for result in results] == [dict, ApiError, dict]
