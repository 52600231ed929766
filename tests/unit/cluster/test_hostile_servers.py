"""Malicious nodes, Pods, aggregated servers and webhooks: their responses cannot redirect or hijack connections."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.remote_nodes import RemoteNodes
from setpoint.meta.errors import ApiError, BadRequest, ServiceUnavailable
from setpoint.system import SystemClock
from setpoint.wire.message import HttpAnswer, Peer, Request, Response, StreamResponse
from setpoint.wire.server import Server
from setpoint.wire.tls import TlsClient

NO = b"Content-Length: 2\r\n\r\nno"
WEBSOCKET = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}


def anywhere(_: object) -> bool:
    return True


def no_tls() -> TlsClient:
    raise AssertionError("no TLS in here")


class Backend:
    """A server that answers every request with the same bytes and keeps reading."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.after = b""
        """Bytes that arrived after the first request of a connection."""
        self.closed = asyncio.Event()
        self.address = ("", 0)
        self._writers: list[asyncio.StreamWriter] = []

    def close(self) -> None:
        """End all connections: since Python 3.12, the end of a server waits for them."""
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(self.answer)
        self.after += await reader.read()
        writer.close()
        self.closed.set()


@asynccontextmanager
async def behind(answer: bytes) -> AsyncIterator[Backend]:
    backend = Backend(answer)
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
    async with server:
        backend.address = server.sockets[0].getsockname()[:2]
        try:
            yield backend
        finally:
            backend.close()


async def by_node(backend: Backend, request: Request) -> HttpAnswer:
    host, port = backend.address
    return await RemoteNodes(no_tls, anywhere).request_pod(host, port, False, request)


async def by_server(backend: Backend, request: Request) -> HttpAnswer:
    host, port = backend.address
    return await NetworkServers(SystemClock()).forward(RemoteServer(host, port, plaintext=True), request, 5.0)


WAYS = pytest.mark.parametrize("way", [by_node, by_server])


def a_request(**headers: str) -> Request:
    return Request("GET", "/x", "", headers, b"", Peer())


# -- upgrades ---------------------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    "status", ["200 OK", "204 No Content", "302 Found", "400 Bad Request", "403 Forbidden", "500 Oh"]
)
async def test_an_upgrade_that_fails_leaves_no_open_connection(way: Any, status: str) -> None:
    """CVE-2018-1002105, over a socket: if an upgrade fails, further bytes of the client are parsed and authenticated as
    a new request and never reach the backend."""
    async with behind(f"HTTP/1.1 {status}\r\n".encode() + NO) as backend:
        users: list[str] = []

        async def handle(request: Request) -> Any:
            users.append(request.headers.get("authorization", "nobody"))
            return await way(backend, request) if request.headers.get("upgrade") else Response(401, b"who?")

        server = Server(handle, clock=SystemClock())
        address = await server.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection(*address)
            lines = ["GET /exec HTTP/1.1", "Host: x", "Authorization: Bearer t"]
            lines += [f"{name}: {value}" for name, value in WEBSOCKET.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(f"HTTP/1.1 {status[:3]}".encode())
            writer.write(b"GET /secrets HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\n\r\n")
            writer.write_eof()
            rest = await asyncio.wait_for(reader.read(), 5)
            await asyncio.wait_for(backend.closed.wait(), 5)
            writer.close()
        finally:
            await server.stop(0)
        assert users[1:] in ([], ["nobody"]) and (not users[1:] or b"HTTP/1.1 401" in rest)
        assert (len(backend.requests), backend.after) == (1, b"")


@WAYS
async def test_an_unrequested_upgrade_is_rejected(way: Any) -> None:
    switching = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nanything"
    async with behind(switching) as backend:
        with pytest.raises((RemoteServerError, ServiceUnavailable)):
            await way(backend, a_request())
        await asyncio.wait_for(backend.closed.wait(), 5)


# -- redirects --------------------------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(way: Any, status: int) -> None:
    """CVE-2020-8559, CVE-2022-3172: this includes responses to upgrade requests."""
    async with behind(b"HTTP/1.1 200 OK\r\n" + NO) as elsewhere:
        target = "http://{}:{}/".format(*elsewhere.address).encode()
        async with behind(b"HTTP/1.1 %d Go\r\nLocation: %b\r\n" % (status, target) + NO) as backend:
            for headers in ({}, WEBSOCKET):
                answer = await way(backend, a_request(**headers))
                assert isinstance(answer, Response | StreamResponse) and answer.status == status
        assert elsewhere.requests == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_of_webhooks_are_not_followed(status: int) -> None:
    """CVE-2020-8561."""
    async with behind(b"HTTP/1.1 200 OK\r\n" + NO) as elsewhere:
        target = "http://{}:{}/".format(*elsewhere.address).encode()
        async with behind(b"HTTP/1.1 %d Go\r\nLocation: %b\r\n" % (status, target) + NO) as backend:
            server = RemoteServer(*backend.address, plaintext=True)
            request = Request("POST", "/hook", "timeout=1s", {}, b"{}", Peer())
            assert (await NetworkServers(SystemClock()).call(server, request, 5.0)).status == status
        assert elsewhere.requests == []


# -- addresses --------------------------------------------------------------------------------------------------------


async def test_the_dialled_address_is_the_checked_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2020-8562, CVE-2022-3294: a name may resolve to different addresses when it is checked and dialled."""
    loop, answers, dialled = asyncio.get_running_loop(), ["192.0.2.7", "127.0.0.1", "127.0.0.1"], []
    asked_for: list[str] = []

    async def getaddrinfo(host: str, port: object, **_: object) -> list[Any]:
        asked_for.append(host)
        return [(2, 1, 6, "", (answers[len(asked_for) - 1], 0))]

    async def create_connection(factory: object, host: str, port: int, **_: object) -> Any:
        dialled.append(host)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(loop, "create_connection", create_connection)
    nodes = RemoteNodes(lambda: TlsClient(None))
    node = {"metadata": {"name": "n"}, "status": {"addresses": [{"type": "Hostname", "address": "changing.example"}]}}
    with pytest.raises(ApiError, match=r"192\.0\.2\.7"):
        await nodes.request_node(node, a_request())
    assert (asked_for, dialled) == (["changing.example"], ["192.0.2.7"])
    with pytest.raises(BadRequest, match="address not allowed"):
        await nodes.request_node(node, a_request())
    assert dialled == ["192.0.2.7"]


async def test_a_name_with_one_forbidden_address_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(host: str, port: object, **_: object) -> list[Any]:
        return [(2, 1, 6, "", (address, 0)) for address in ("192.0.2.7", "169.254.169.254")]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    with pytest.raises(BadRequest, match="address not allowed"):
        await RemoteNodes(no_tls).request_pod("two.example", 80, False, a_request())


# -- endless responses -------------------------------------------------------------------------------------------

CHUNKED = b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"-5\r\n",
        CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
        CHUNKED + b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
        CHUNKED + b"f" * 5000 + b"\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\nContent-Length: -5\r\n\r\n",
    ],
    ids=lambda answer: repr(answer[-30:]),
)
@WAYS
async def test_invalid_lengths_end_the_response(way: Any, answer: bytes) -> None:
    """The response is endless and must be neither awaited nor buffered."""
    filler = b"x" * 2**20

    class Flood(Backend):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            try:
                for _ in range(40):
                    writer.write(filler)
                    await writer.drain()
            except OSError:
                pass
            writer.close()

    backend = Flood(answer)
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
    async with server:
        backend.address = server.sockets[0].getsockname()[:2]
        tracemalloc.start()
        try:
            with pytest.raises((RemoteServerError, ServiceUnavailable)):
                found = await asyncio.wait_for(way(backend, a_request(**WEBSOCKET)), 5)
                assert isinstance(found, Response), found
            assert tracemalloc.get_traced_memory()[1] < 25 * 2**20
        finally:
            tracemalloc.stop()
