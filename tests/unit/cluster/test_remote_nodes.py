"""Nodes in other processes: what the API server trusts in their responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from setpoint.apiserver.filters.authorize import Access, Decision
from setpoint.apiserver.filters.rbac import ComponentAuthorizer
from setpoint.apiserver.node_connection import NodeRoutes, NodeUnreachable
from setpoint.client import Client
from setpoint.cluster.certificates import CertificateFiles, ensure_certificates, issue_client_certificate
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.delegated_auth import DelegatedAuth
from setpoint.cluster.kubelet_server import KubeletHandler, _context
from setpoint.cluster.outgoing_tls import kubelet_tls
from setpoint.cluster.remote_nodes import RemoteNodes, is_allowed
from setpoint.kinds.strategy import UserInfo
from setpoint.meta.errors import BadRequest, ServiceUnavailable
from setpoint.meta.objects import Obj
from setpoint.node.kubelet_api.interface import BufferedResponse, NodeRequest
from setpoint.system import SystemClock
from setpoint.wire.message import Peer, Request, Response, StreamResponse, UpgradeResponse
from setpoint.wire.server import Server
from setpoint.wire.tls import TlsClient

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


def a_request(method: str = "GET", path: str = "/x", **headers: str) -> Request:
    return Request(method, path, "a=b", headers, b"", Peer())


async def body_of(answer: StreamResponse) -> bytes:
    got: list[bytes] = []

    class Writer:
        buffered = 0

        def write(self, data: bytes) -> None:
            got.append(data)

        def write_chunks(self, chunks: bytes) -> None: ...

        async def drained(self) -> None: ...

        async def closed(self) -> None:
            await asyncio.Event().wait()

    await answer.run(Writer())
    return b"".join(got)


class NodeConnectionRecord:
    """What a node received over its only connection."""

    def __init__(self) -> None:
        self.request = self.rest = b""
        self.over = asyncio.Event()


def answering(raw: bytes, seen: NodeConnectionRecord) -> Serve:
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
async def test_responses_are_returned(raw: bytes, body: bytes) -> None:
    seen = NodeConnectionRecord()
    async with listening(answering(raw, seen)) as port:
        answer = await RemoteNodes(plain, anywhere).request_pod("127.0.0.1", port, False, a_request(accept="*/*"))
        assert isinstance(answer, StreamResponse) and await body_of(answer) == body
        await asyncio.wait_for(seen.over.wait(), 5)
    head = seen.request.decode()
    assert head.startswith("GET /x?a=b HTTP/1.1\r\n") and "accept: */*\r\n" in head


async def test_redirects_are_returned_to_the_client() -> None:
    """CVE-2020-8559."""
    seen = NodeConnectionRecord()
    raw = b"HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/secret\r\nContent-Length: 0\r\n\r\n"
    async with listening(answering(raw, seen)) as port:
        answer = await RemoteNodes(plain, anywhere).request_pod("127.0.0.1", port, False, a_request())
        await asyncio.wait_for(seen.over.wait(), 5)
    assert isinstance(answer, Response) and answer.status == 302


async def test_an_upgrade_that_is_not_answered_with_101_ends_the_connection() -> None:
    """CVE-2018-1002105."""
    seen = NodeConnectionRecord()
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"
    async with listening(answering(raw, seen)) as port:
        remote = RemoteNodes(plain, anywhere)
        answer = await remote.request_pod(
            "127.0.0.1", port, False, a_request(upgrade="websocket", connection="Upgrade")
        )
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
        answer = await RemoteNodes(plain, anywhere).request_pod("127.0.0.1", port, False, a_request(upgrade="x"))
        assert isinstance(answer, UpgradeResponse)
        client = Client()
        await answer.run(client)
        assert client.got == b"firstping"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.9.1",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:127.0.0.1",
        "localhost",
    ],
)
async def test_a_node_cannot_lead_back_to_this_machine_or_its_link(address: str) -> None:
    """CVE-2020-8562, CVE-2022-3294."""
    remote = RemoteNodes(plain)
    with pytest.raises(BadRequest, match="address not allowed"):
        await remote.request_pod(address, 1, False, a_request())
    remote._tls = TlsClient(None)
    node = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}}
    with pytest.raises(BadRequest, match="address not allowed"):
        await remote.request_node(node, a_request())


def test_ordinary_addresses_are_allowed() -> None:
    from ipaddress import ip_address

    for each in ("10.0.0.1", "172.30.0.1", "192.0.2.1", "8.8.8.8", "fd00::1", "2001:db8::1"):
        assert is_allowed(ip_address(each)), each


@pytest.mark.parametrize("raw", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000])
async def test_a_response_that_is_not_http_is_an_error(raw: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        writer.close()

    async with listening(serve) as port:
        with pytest.raises(ServiceUnavailable, match="error trying to reach service"):
            await RemoteNodes(plain, anywhere).request_pod("127.0.0.1", port, False, a_request())


async def test_a_refused_connection_is_reported() -> None:
    async with listening(answering(b"", NodeConnectionRecord())) as port:
        pass
    with pytest.raises(ServiceUnavailable, match=rf"dial tcp 127\.0\.0\.1:{port}: connect: connection refused"):
        await RemoteNodes(plain, anywhere).request_pod("127.0.0.1", port, False, a_request())


async def test_a_node_without_an_address_is_not_dialled() -> None:
    node = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}
    with pytest.raises(NodeUnreachable, match=r'Get "https://10\.0\.0\.1:10250/x'):
        await NodeRoutes().request_node(node, a_request())


# -- the kubelet server -----------------------------------------------------------------------------------------------


class Host:
    def is_reachable(self, node: str) -> bool:
        return node != "off"

    def names(self) -> list[str]:
        return ["node-1", "node-2", "off"]


class StaticAuth(DelegatedAuth):
    async def is_allowed(self, user: UserInfo, attributes: Obj) -> bool:
        requested = attributes["resourceAttributes"]
        access = Access(user, requested["verb"], resource=requested["resource"], subresource=requested["subresource"])
        return ComponentAuthorizer().authorize(access)[0] is Decision.ALLOW


class Api:
    async def handle(self, request: NodeRequest) -> BufferedResponse:
        return BufferedResponse(200, f"{request.node} {request.path}".encode())


@asynccontextmanager
async def harness(directory: Path) -> AsyncIterator[tuple[CertificateFiles, int]]:
    clock = SystemClock()
    files = ensure_certificates(directory / "pki", clock.now())
    access = StaticAuth(cast(Client, None), clock)
    handler = KubeletHandler(Host(), Api(), access)  # type: ignore[arg-type]
    (directory / "nodes").mkdir()
    context = _context(directory / "nodes", files.ca.read_bytes(), "127.0.0.1", clock)
    server = Server(handler.handle, clock=clock, ssl=context)
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


async def test_the_kubelet_server_authenticates_and_selects_the_node(tmp_path: Path) -> None:
    async with harness(tmp_path) as (files, port):
        remote = RemoteNodes(kubelet_tls(ApiServerConfig(tmp_path), files, SystemClock()), anywhere)
        answer = await remote.request_node(a_node("node-2", port), a_request(path="/pods"))
        assert isinstance(answer, StreamResponse) and await body_of(answer) == b"node-2 /pods"
        answer = await remote.request_node(a_node("off", port), a_request(path="/pods"))
        assert isinstance(answer, Response) and answer.status == 503
        without_certificate = RemoteNodes(kubelet_tls(ApiServerConfig(tmp_path), None, SystemClock()), anywhere)
        answer = await without_certificate.request_node(a_node("node-1", port), a_request())
        assert isinstance(answer, Response) and answer.status == 401


async def test_other_users_of_the_cluster_are_forbidden(tmp_path: Path) -> None:
    async with harness(tmp_path) as (files, port):
        certificate, key = issue_client_certificate(files, "alice", ["developers"], SystemClock().now())
        (tmp_path / "alice.crt").write_bytes(certificate)
        (tmp_path / "alice.key").write_bytes(key)
        config = ApiServerConfig(
            tmp_path,
            kubelet_client_certificate=str(tmp_path / "alice.crt"),
            kubelet_client_key=str(tmp_path / "alice.key"),
        )
        answer = await RemoteNodes(kubelet_tls(config, files, SystemClock()), anywhere).request_node(
            a_node("node-1", port), a_request()
        )
        assert isinstance(answer, Response) and answer.status == 403
