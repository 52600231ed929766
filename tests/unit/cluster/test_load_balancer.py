"""Client-side load balancing: which server is chosen, when a component leaves it, and what survives a restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from http_harness import LoopClock, until
from local_server import LocalServer
from stopped_clock import StoppedClock

from setpoint.client import Unreachable
from setpoint.client.dialing import ServerAddress
from setpoint.client.https import HttpsTransport
from setpoint.client.kubeconfig import Access
from setpoint.client.resources import builtin
from setpoint.cluster.load_balancer import GRACE, LoadBalancer, addresses_of
from setpoint.meta.objects import Obj
from setpoint.system import RandomIds, SystemClock
from setpoint.wire.client_connection import ClientConnection
from setpoint.wire.message import Answer, Request, Response, StreamResponse, StreamWriter
from setpoint.wire.server import Server

A, B, C = (ServerAddress(f"192.0.2.{number}", 6443) for number in (11, 12, 13))
GIVEN = ServerAddress("api.example.com", 6443)


class Cluster:
    """The state of each server, for probes."""

    def __init__(self) -> None:
        self.states: dict[ServerAddress, bool | None] = dict.fromkeys((A, B, C, GIVEN), True)
        """Whether it is ready; None if it does not answer."""
        self.probed: list[ServerAddress] = []

    async def probe(self, server: ServerAddress) -> bool:
        self.probed.append(server)
        state = self.states[server]
        if state is None:
            raise Unreachable("no answer")
        return state


class Connection(ClientConnection):
    def __init__(self) -> None:
        super().__init__()
        self.state = "open"

    def retire(self) -> None:
        self.state = "retired"

    def abort(self) -> None:
        self.state, self.lost = "closed", True


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def balancer(clock: StoppedClock, cluster: Cluster) -> LoadBalancer:
    return LoadBalancer(Access("https://api.example.com:6443"), clock, RandomIds(1), probe=cluster.probe)


def connected(balancer: LoadBalancer, server: ServerAddress) -> Connection:
    connection = Connection()
    balancer.connected(server, connection)
    return connection


# The choice.


def test_without_a_list_there_is_the_given_server(balancer: LoadBalancer) -> None:
    assert balancer.candidates() == [GIVEN]


def test_one_listed_server_is_used_only_if_the_given_one_fails(balancer: LoadBalancer) -> None:
    balancer.update([A])
    assert balancer.candidates() == [GIVEN, A]
    balancer.failed(GIVEN)
    assert balancer.candidates() == [A, GIVEN]


def test_of_several_a_random_one_is_first_and_the_given_one_last(clock: StoppedClock) -> None:
    firsts = set()
    for seed in range(20):
        balancer = LoadBalancer(Access("https://api.example.com:6443"), clock, RandomIds(seed))
        balancer.update([A, B, C])
        *listed, last = balancer.candidates()
        assert last == GIVEN and sorted(listed) == [A, B, C]
        firsts.add(listed[0])
    assert firsts == {A, B, C}


async def test_a_component_stays_with_its_server(balancer: LoadBalancer) -> None:
    balancer.update([A, B, C])
    for server in (A, B, C):
        connected(balancer, server)
        assert balancer.candidates()[0] == server
    balancer.update([A, B, C, ServerAddress("192.0.2.14", 6443)])
    assert balancer.candidates()[0] == C


async def test_a_server_that_failed_is_tried_last_until_it_works(balancer: LoadBalancer) -> None:
    balancer.update([A, B, C])
    for server in (A, B):
        balancer.failed(server)
    assert balancer.candidates()[:2] == [C, GIVEN]
    balancer.failed(C)
    balancer.failed(GIVEN)
    assert set(balancer.candidates()) == {A, B, C, GIVEN}
    connected(balancer, B)
    assert balancer.candidates()[0] == B


async def test_a_server_on_this_machine_is_preferred(clock: StoppedClock, cluster: Cluster) -> None:
    local = ServerAddress("127.0.0.1", 6443)
    balancer = LoadBalancer(Access("https://127.0.0.1:6443"), clock, RandomIds(1), probe=cluster.probe)
    balancer.update([A, B])
    assert balancer.candidates()[0] == local
    balancer.failed(local)
    remote = connected(balancer, balancer.candidates()[0])
    cluster.states[local] = None
    await balancer.check()
    assert balancer.candidates()[0] != local and remote.state == "open"
    cluster.states[local] = True
    await balancer.check()
    assert balancer.candidates()[0] == local and remote.state == "retired"


async def test_requests_move_from_the_given_server_when_others_are_known(balancer: LoadBalancer) -> None:
    connection = connected(balancer, GIVEN)
    balancer.update([A])
    assert connection.state == "open" and balancer.candidates()[0] == GIVEN
    balancer.update([A, B])
    assert connection.state == "retired" and balancer.candidates()[-1] == GIVEN


# Health.


async def test_one_server_is_not_probed(balancer: LoadBalancer, cluster: Cluster) -> None:
    balancer.update([A])
    connection = connected(balancer, A)
    await balancer.check()
    assert cluster.probed == [] and not connection.lost


async def test_only_servers_in_use_are_probed(balancer: LoadBalancer, cluster: Cluster) -> None:
    balancer.update([A, B, C])
    connection = connected(balancer, B)
    await balancer.check()
    assert cluster.probed == [B]
    connection.abort()
    await balancer.check()
    assert cluster.probed == [B]


async def test_connections_of_a_server_that_does_not_answer_are_closed_at_once(
    balancer: LoadBalancer, cluster: Cluster
) -> None:
    balancer.update([A, B])
    other = connected(balancer, B)
    used, idle = connected(balancer, A), connected(balancer, A)
    assert other.state == "retired"  # one server at a time
    cluster.states[A] = None
    await balancer.check()
    assert (used.state, idle.state, other.state) == ("closed", "closed", "retired")
    assert balancer.candidates()[0] == B and balancer.candidates()[-1] == A


async def test_nothing_is_closed_if_no_other_server_is_ready(balancer: LoadBalancer, cluster: Cluster) -> None:
    balancer.update([A, B])
    connection = connected(balancer, A)
    cluster.states.update({A: None, B: False, GIVEN: None})
    await balancer.check()
    assert connection.state == "open" and balancer.candidates()[0] == A


async def test_a_server_that_is_not_ready_may_finish_what_it_has_begun(
    balancer: LoadBalancer, cluster: Cluster, clock: StoppedClock
) -> None:
    balancer.update([A, B])
    connection = connected(balancer, A)
    cluster.states[A] = False
    await balancer.check()
    assert connection.state == "retired" and balancer.candidates()[0] == B
    await clock.advance(GRACE - 1)
    await balancer.check()
    assert connection.state == "retired"
    await clock.advance(1)
    await balancer.check()
    assert connection.state == "closed"


async def test_a_server_that_is_ready_again_keeps_its_connections(
    balancer: LoadBalancer, cluster: Cluster, clock: StoppedClock
) -> None:
    balancer.update([A, B])
    connection = connected(balancer, A)
    cluster.states[A] = False
    await balancer.check()
    cluster.states[A] = True
    await balancer.check()
    await clock.advance(GRACE + 1)
    await balancer.check()
    assert connection.state == "retired"


async def test_the_last_listed_server_is_left_for_the_given_one(balancer: LoadBalancer, cluster: Cluster) -> None:
    balancer.update([A, B])
    connection = connected(balancer, A)
    balancer.update([A])
    cluster.states[A] = None
    await balancer.check()
    assert connection.state == "closed" and balancer.candidates()[0] == GIVEN


# The list.


async def test_a_server_that_left_the_list_is_left_too(
    balancer: LoadBalancer, cluster: Cluster, clock: StoppedClock
) -> None:
    balancer.update([A, B])
    connection = connected(balancer, A)
    balancer.update([B, C])
    assert connection.state == "retired" and A not in balancer.candidates()
    late = connected(balancer, A)  # it was dialled before
    assert balancer.candidates()[0] != A
    await clock.advance(GRACE)
    await balancer.check()
    assert (connection.state, late.state) == ("closed", "closed")


async def test_an_empty_list_is_ignored(balancer: LoadBalancer) -> None:
    balancer.update([A, B])
    connection = connected(balancer, A)
    balancer.update([])
    assert connection.state == "open" and set(balancer.candidates()) == {A, B, GIVEN}


async def test_the_given_server_never_leaves(balancer: LoadBalancer) -> None:
    balancer.update([A, GIVEN])
    connection = connected(balancer, GIVEN)
    balancer.update([A, B])
    assert GIVEN in balancer.candidates() and connection.state == "retired"


def test_the_list_survives_a_restart(tmp_path: Path, clock: StoppedClock) -> None:
    file = tmp_path / "servers.json"
    access = Access("https://api.example.com:6443")
    LoadBalancer(access, clock, RandomIds(1), file=file).update([A, B])
    assert file.stat().st_mode & 0o777 == 0o600
    again = LoadBalancer(access, clock, RandomIds(2), file=file)
    assert set(again.candidates()) == {A, B, GIVEN} and again.candidates()[-1] == GIVEN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1]",
        b'[["192.0.2.1"]]',
        b'[[7, "x"]]',
        b'{"a": 1}',
        b'[["evil.example.com", 1], ["192.0.2.1", 99999]]',
    ],
)
def test_a_broken_file_is_ignored(tmp_path: Path, clock: StoppedClock, content: bytes) -> None:
    file = tmp_path / "servers.json"
    file.write_bytes(content)
    balancer = LoadBalancer(Access("https://api.example.com:6443"), clock, RandomIds(1), file=file)
    assert balancer.candidates() == [GIVEN]
    balancer.update([A, B])
    assert sorted(json.loads(file.read_bytes())) == [list(A), list(B)]


def slice_of(name: str, port: int, *hosts: str, **more: Any) -> Obj:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}} for host in hosts],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        **more,
    }


def test_addresses_of_several_slices() -> None:
    unready = {"addresses": ["192.0.2.3"], "conditions": {"ready": False}}
    slices = [
        slice_of("a", 6443, "192.0.2.1", "192.0.2.2"),
        slice_of("b", 7443, "192.0.2.1", ports=[{"port": 7443}, {"name": "metrics", "port": 1}, {"name": "https"}]),
        slice_of("c", 6443, endpoints=[unready, {"addresses": ["2001:db8::1"]}, {"addresses": ["a.example.com"]}]),
        {"metadata": {"name": "empty"}, "endpoints": None, "ports": None},
    ]
    assert [str(each) for each in addresses_of(slices)] == [
        "192.0.2.1:6443",
        "192.0.2.2:6443",
        "192.0.2.1:7443",
        "[2001:db8::1]:6443",
    ]


async def test_the_list_follows_the_endpoint_slices(local_server: LocalServer, balancer: LoadBalancer) -> None:
    client = local_server.client
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(20):
        following = tasks.create_task(balancer.follow(client))
        for name, server in (("kubernetes-a", A), ("kubernetes-b", B)):
            await client.create(slice_of(name, server.port, server.host))
        other = slice_of("other", 1, "192.0.2.99")
        other["metadata"]["labels"] = {"kubernetes.io/service-name": "other"}
        await client.create(other)
        await until(lambda: {A, B} <= set(balancer.candidates()))
        await client.delete(builtin("endpointslices", "discovery.k8s.io"), "kubernetes-a", "default")
        await until(lambda: A not in balancer.candidates())
        assert B in balancer.candidates()
        assert "192.0.2.99" not in {server.host for server in balancer.candidates()}
        following.cancel()


# With real connections.


class ApiServer:
    """Answers with its name; `/watch` streams until the connection ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = True
        self.stuck: asyncio.Event | None = None
        self.waiting = 0
        self.server = Server(self._handle, clock=LoopClock())
        self.address = ServerAddress("", 0)

    async def _handle(self, request: Request) -> Answer:
        if self.stuck is not None:
            self.waiting += 1
            await self.stuck.wait()
        if request.path == "/readyz":
            return Response(200 if self.ready else 500, b"")
        if request.path == "/watch":
            return StreamResponse(200, [], self._watch)
        return Response(200, self.name.encode())

    async def _watch(self, writer: StreamWriter) -> None:
        writer.write(self.name.encode())
        await writer.closed()


@asynccontextmanager
async def api_servers(*names: str) -> AsyncIterator[list[ApiServer]]:
    servers = [ApiServer(name) for name in names]
    for each in servers:
        each.address = ServerAddress(*await each.server.start("127.0.0.1", 0))
    try:
        yield servers
    finally:
        for each in servers:
            await each.server.stop(0)


async def refused(request: Awaitable[object]) -> str:
    with pytest.raises(Unreachable) as error:
        await request
    return str(error.value)


async def body(transport: HttpsTransport) -> str:
    return (await transport.request("GET", "/", "", (), b"")).body.decode()


async def test_requests_and_watches_move_from_a_server_that_stopped_answering() -> None:
    async with api_servers("a", "b") as (a, b), asyncio.timeout(30):
        access = Access(f"http://{a.address}")
        cluster = Cluster()
        cluster.states = {a.address: True, b.address: True}
        balancer = LoadBalancer(access, SystemClock(), RandomIds(1), probe=cluster.probe)
        balancer.update([a.address, b.address])
        transport = HttpsTransport(access, SystemClock(), servers=balancer)
        assert await body(transport) == "a"
        watch = await transport.stream("GET", "/watch", "", (), b"")
        assert await anext(watch) == b"a"
        await balancer.check()
        assert await body(transport) == "a"
        a.stuck = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            read = tasks.create_task(transport.request("GET", "/", "", (), b""))
            write = tasks.create_task(refused(transport.request("POST", "/", "", (), b"")))
            await until(lambda: a.waiting == 2)
            cluster.states[a.address] = None
            await balancer.check()
            with pytest.raises(Unreachable):
                await anext(watch)
        assert read.result().body == b"b"  # tried again
        assert "closed the connection" in write.result()
        assert await body(transport) == "b"
        a.stuck.set()
        await transport.close()


async def test_a_restart_while_the_given_server_is_down(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    async with api_servers("a", "b") as (a, b), asyncio.timeout(30):
        access = Access(f"http://{a.address}")
        LoadBalancer(access, SystemClock(), RandomIds(1), file=file).update([a.address, b.address])
        await a.server.stop(0)
        balancer = LoadBalancer(access, SystemClock(), RandomIds(2), file=file)
        transport = HttpsTransport(access, SystemClock(), servers=balancer)
        assert await body(transport) == "b"
        await transport.close()


async def test_a_server_that_is_not_ready_gets_no_new_requests() -> None:
    async with api_servers("a", "b") as (a, b), asyncio.timeout(30):
        access = Access(f"http://{a.address}")
        balancer = LoadBalancer(access, SystemClock(), RandomIds(1))
        balancer.update([a.address, b.address])
        transport = HttpsTransport(access, SystemClock(), servers=balancer)
        watch = await transport.stream("GET", "/watch", "", (), b"")
        assert await anext(watch) == b"a"
        assert await body(transport) == "a"
        a.ready = False
        await balancer.check()
        assert await body(transport) == "b"
        await a.server.stop(5)
        with pytest.raises(StopAsyncIteration):  # it ended in order
            await anext(watch)
        watch.close()
        await transport.close()
