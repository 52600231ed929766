"""Nodes at the other end of a wire: what is trusted of them, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from setpoint.apiserver.filters.authorize import Access, Decision
from setpoint.apiserver.filters.own_identities import OwnIdentities
from setpoint.apiserver.http.certificates import CertificateFiles, ensure_certificates, issue_client_certificate
from setpoint.apiserver.http.message import Peer, Request, Response, StreamResponse, UpgradeResponse
from setpoint.apiserver.http.server import Server
from setpoint.apiserver.node_connection import NodeRoutes, NodeUnreachable
from setpoint.client import Client
from setpoint.client.tls import TlsClient
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.delegated_access import DelegatedAccess
from setpoint.cluster.far_nodes import FarNodes, is_allowed
from setpoint.cluster.kubelet_client import kubelet_tls
from setpoint.cluster.kubelet_door import KubeletDoor, _context
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest, ServiceUnavailable
from setpoint.node.kubelet_api.messages import NodeRequest, Whole
from setpoint.system import SystemClock

Obj = dict[str, Any]
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def anywhere(_: object) -> bool:
    return True


def plain() -> TlsClient:
    raise AssertionError("no TLS in here")


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def asked(method: str = "GET", path: str = "/x", **headers: str) -> Request:
    return Request(method, path, "a=b", headers, b"", Peer())


async def body_of(answer: StreamResponse) -> bytes:
    got: list[bytes] = []

    class Writer:
        buffered = 0

        def write(self, data: bytes) -> None:
            got.append(data)

        def write_frames(self, frames: bytes) -> None: ...

        async def drained(self) -> None: ...

        async def closed(self) -> None:
            await asyncio.Event().wait()

    await answer.run(Writer())
    return b"".join(got)


class Seen:
    """What a node has seen of its one connection."""

    def __init__(self) -> None:
        self.request = self.rest = b""
        self.over = asyncio.Event()


def answering(raw: bytes, seen: Seen) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.request = await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        seen.rest = await reader.read()
        writer.close()
        seen.over.set()

    return serve


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n", b"hello"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", b"x"),
    ],
)
async def test_answers(raw: bytes, body: bytes) -> None:
    seen = Seen()
    async with listening(answering(raw, seen)) as port:
        answer = await FarNodes(plain, anywhere).reach("127.0.0.1", port, False, asked(accept="*/*"))
        assert isinstance(answer, StreamResponse) and await body_of(answer) == body
        await asyncio.wait_for(seen.over.wait(), 5)
    head = seen.request.decode()
    assert head.startswith("GET /x?a=b HTTP/1.1\r\n") and "accept: */*\r\n" in head


async def test_redirects_are_handed_back() -> None:
    """CVE-2020-8559."""
    seen = Seen()
    raw = b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/secret\r\nContent-Length: 0\r\n\r\n"
    async with listening(answering(raw, seen)) as port:
        answer = await FarNodes(plain, anywhere).reach("127.0.0.1", port, False, asked())
        await asyncio.wait_for(seen.over.wait(), 5)
    assert isinstance(answer, Response) and answer.status == 302


async def test_an_upgrade_that_is_not_answered_with_101_ends_the_connection() -> None:
    """CVE-2018-1002105."""
    seen = Seen()
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"
    async with listening(answering(raw, seen)) as port:
        far = FarNodes(plain, anywhere)
        answer = await far.reach("127.0.0.1", port, False, asked(upgrade="websocket", connection="Upgrade"))
        assert isinstance(answer, Response) and (answer.status, answer.body) == (200, b"no")
        await asyncio.wait_for(seen.over.wait(), 5)
    assert seen.rest == b"", "no second request reached it"


async def test_an_upgrade_passes_bytes_both_ways() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: upgrade\r\n" in head and b"upgrade: x\r\n" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nfirst")
        writer.write(await reader.readexactly(4))
        writer.close()

    class Client:
        def __init__(self) -> None:
            self.got = b""
            self.sent = False

        def write(self, data: bytes) -> None:
            self.got += data

        async def read(self) -> bytes:
            if self.sent:
                await asyncio.Event().wait()
            self.sent = True
            return b"ping"

        async def drained(self) -> None: ...

        def close(self) -> None: ...

    async with listening(echo) as port:
        answer = await FarNodes(plain, anywhere).reach("127.0.0.1", port, False, asked(upgrade="x"))
        assert isinstance(answer, UpgradeResponse)
        client = Client()
        await answer.run(client)
        assert client.got == b"firstping"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0",
                                     "224.0.0.1", "::ffff:127.0.0.1", "localhost"])  # fmt: skip
async def test_a_node_cannot_lead_back_to_this_machine_or_its_link(address: str) -> None:
    """CVE-2020-8562, CVE-2022-3294."""
    far = FarNodes(plain)
    with pytest.raises(BadRequest, match="address not allowed"):
        await far.reach(address, 1, False, asked())
    far._tls = TlsClient(None)
    node = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}
    with pytest.raises(BadRequest, match="address not allowed"):
        await far.ask(node, asked())


def test_ordinary_addresses_are_allowed() -> None:
    from ipaddress import ip_address

    for each in ("10.0.0.1", "172.30.0.1", "192.0.2.1", "8.8.8.8", "fd00::1", "2001:db8::1"):
        assert is_allowed(ip_address(each)), each


@pytest.mark.parametrize("raw", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000])
async def test_who_speaks_something_else_is_not_there(raw: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    async with listening(serve) as port:
        with pytest.raises(ServiceUnavailable, match="error trying to reach service"):
            await FarNodes(plain, anywhere).reach("127.0.0.1", port, False, asked())


async def test_nobody_is_there() -> None:
    async with listening(answering(b"", Seen())) as port:
        pass
    with pytest.raises(ServiceUnavailable, match=rf"dial tcp 127\.0\.0\.1:{port}: connect: connection refused"):
        await FarNodes(plain, anywhere).reach("127.0.0.1", port, False, asked())


async def test_nobody_dials_where_nothing_is_known() -> None:
    node = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    with pytest.raises(NodeUnreachable, match=r'Get "https://10\.0\.0\.1:10250/x'):
        await NodeRoutes().ask(node, asked())


# -- the door at the other end ----------------------------------------------------------------------------------------


class Host:
    def answers(self, node: str) -> bool:
        return node != "off"


class Nodes:
    nodes = dict.fromkeys(("node-1", "node-2", "off"))


class AsTheServerSays(DelegatedAccess):
    async def may(self, user: UserInfo, attributes: Obj) -> bool:
        asked = attributes["resourceAttributes"]
        access = Access(user, asked["verb"], resource=asked["resource"], subresource=asked["subresource"])
        return OwnIdentities().authorize(access)[0] is Decision.ALLOW


class Api:
    def handle(self, request: NodeRequest) -> Whole:
        return Whole(200, f"{request.node} {request.path}".encode())


@asynccontextmanager
async def door(directory: Path) -> AsyncIterator[tuple[CertificateFiles, int]]:
    clock = SystemClock()
    files = ensure_certificates(directory / "pki", clock.now())
    access = AsTheServerSays(cast(Client, None), clock)
    kept = KubeletDoor(Nodes(), Host(), Api(), access)  # type: ignore[arg-type]
    (directory / "nodes").mkdir()
    context = _context(directory / "nodes", files.ca.read_bytes(), "127.0.0.1", clock)
    server = Server(kept.handle, clock=clock, ssl=context)
    _, port = await server.start("127.0.0.1", 0)
    try:
        yield files, port
    finally:
        await server.stop(1.0)


def a_node(name: str, port: int) -> Obj:
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {"metadata": {"name": name}, "status": status}


async def test_the_door_knows_the_server_and_which_node_it_means(tmp_path: Path) -> None:
    async with door(tmp_path) as (files, port):
        far = FarNodes(kubelet_tls(ApiServerConfig(tmp_path), files, SystemClock()), anywhere)
        answer = await far.ask(a_node("node-2", port), asked(path="/pods"))
        assert isinstance(answer, StreamResponse) and await body_of(answer) == b"node-2 /pods"
        answer = await far.ask(a_node("off", port), asked(path="/pods"))
        assert isinstance(answer, Response) and answer.status == 503
        strangers = FarNodes(kubelet_tls(ApiServerConfig(tmp_path), None, SystemClock()), anywhere)
        answer = await strangers.ask(a_node("node-1", port), asked())
        assert isinstance(answer, Response) and answer.status == 401


async def test_other_users_of_the_cluster_are_not_let_in(tmp_path: Path) -> None:
    async with door(tmp_path) as (files, port):
        certificate, key = issue_client_certificate(files, "alice", ["developers"], SystemClock().now())
        (tmp_path / "alice.crt").write_bytes(certificate)
        (tmp_path / "alice.key").write_bytes(key)
        config = ApiServerConfig(
            tmp_path, kubelet_client_certificate=str(tmp_path / "alice.crt"),
            kubelet_client_key=str(tmp_path / "alice.key"),
        )  # fmt: skip
        answer = await FarNodes(kubelet_tls(config, files, SystemClock()), anywhere).ask(
            a_node("node-1", port), asked()
        )
        assert isinstance(answer, Response) and answer.status == 403
