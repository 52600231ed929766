"""Requests to webhooks and aggregated servers over real TLS sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from setpoint.apiserver.remote_servers import RemoteServer, RemoteServerError
from setpoint.cluster.certificates import CertificateFiles, ensure_certificates, server_context
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.outgoing_tls import FrontProxy
from setpoint.system import SystemClock
from setpoint.wire.message import Peer, Request, Response, StreamResponse

Reply = Callable[[bytes, dict[str, object]], bytes]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"), datetime.now(UTC), extra_names=["far.default.svc"])


@asynccontextmanager
async def listening(context: ssl.SSLContext, reply: Reply) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        answer = reply(head, writer.get_extra_info("peercert") or {})
        if answer:
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def exchange(path: str = "/x") -> Request:
    return Request("POST", path, "timeout=30s", {"content-type": "application/json"}, b"{}", Peer())


async def test_the_complete_response_is_returned(files: CertificateFiles) -> None:
    heads = []

    def reply(head: bytes, _: dict[str, object]) -> bytes:
        heads.append(head)
        return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"

    async with listening(server_context(files), reply) as port:
        server = RemoteServer(
            "127.0.0.1", port, "far.default.svc", files.ca.read_bytes(), display_address="far.default.svc:443"
        )
        response = await NetworkServers(SystemClock()).call(server, exchange(), 5.0)
    assert (response.status, response.body) == (200, b"abcde")
    assert heads[0].startswith(b"POST /x?timeout=30s HTTP/1.1\r\nhost: far.default.svc:443\r\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda server: RemoteServer(server.host, server.port, server.server_name),
            "tls: failed to verify certificate",
        ),
        (lambda server: RemoteServer(server.host, server.port, "other.svc", server.ca_bundle), "tls: failed to verify"),
        (
            lambda server: RemoteServer(server.host, 1, server.server_name),
            "dial tcp 127.0.0.1:1: connect: connection refused",
        ),
    ],
)
async def test_a_server_with_an_untrusted_certificate_gets_no_request(
    files: CertificateFiles, change: Callable[[RemoteServer], RemoteServer], message: str
) -> None:
    def reply(head: bytes, _: dict[str, object]) -> bytes:
        raise AssertionError("nothing is to be sent")

    async with listening(server_context(files), reply) as port:
        server = RemoteServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes())
        with pytest.raises(RemoteServerError, match=message):
            await NetworkServers(SystemClock()).call(change(server), exchange(), 5.0)


async def test_insecure_disables_certificate_verification(files: CertificateFiles) -> None:
    async with listening(server_context(files), lambda head, _: b"HTTP/1.1 204 No Content\r\n\r\n") as port:
        response = await NetworkServers(SystemClock()).call(
            RemoteServer("127.0.0.1", port, insecure=True), exchange(), 5.0
        )
    assert response.status == 204


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0\r\n\r\n"])
async def test_timeouts_and_invalid_responses_are_errors(files: CertificateFiles, reply: bytes) -> None:
    async with listening(server_context(files), lambda head, _: reply) as port:
        server = RemoteServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes())
        with pytest.raises(RemoteServerError, match="EOF"):
            await NetworkServers(SystemClock()).call(server, exchange(), 5.0)


async def test_the_front_proxy_certificate_is_shown_only_to_aggregated_servers(
    files: CertificateFiles, tmp_path: Path
) -> None:
    seen: list[object] = []
    front = FrontProxy(files, SystemClock())
    servers = NetworkServers(SystemClock(), lambda: front.certificate)

    def reply(head: bytes, peer: dict[str, object]) -> bytes:
        seen.append(peer.get("subject"))
        return b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere\r\ncontent-length: 2\r\n\r\nno"

    context = server_context(files, files.ca.with_name("front-proxy") / "ca.crt" if front.certificate else None)
    async with listening(context, reply) as port:
        for as_proxy in (False, True):
            server = RemoteServer(
                "127.0.0.1", port, "far.default.svc", files.ca.read_bytes(), proxy_certificate=as_proxy
            )
            answer = await servers.forward(server, exchange(), 5.0)
            assert isinstance(answer, Response | StreamResponse)
            assert answer.status == 302  # and it is not followed
            if isinstance(answer, StreamResponse):
                await answer.run(_Sink())
    assert seen == [None, ((("commonName", "front-proxy-client"),),)]


class _Sink:
    """A StreamWriter that discards everything."""

    buffered = 0

    def write(self, data: bytes) -> None: ...

    def write_chunks(self, chunks: bytes) -> None: ...

    async def drained(self) -> None: ...

    async def closed(self) -> None:
        await asyncio.Event().wait()


async def test_connections_are_reused_if_keep_alive_is_set(files: CertificateFiles) -> None:
    """A connection that the server has closed in the meantime is replaced without an error."""
    served: list[int] = []
    hang_up = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(0)
        while not hang_up.is_set():
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                break
            await reader.readexactly(2)
            served[-1] += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            if len(served) == 1 and served[0] == 3:
                break
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context(files))
    port = listener.sockets[0].getsockname()[1]
    servers = NetworkServers(SystemClock())
    server = RemoteServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes(), keep_alive=True)
    try:
        for _ in range(5):
            assert (await servers.call(server, exchange(), 5.0)).body == b"ok"
        assert served == [3, 2]
        hang_up.set()
        assert (await servers.call(server, exchange(), 5.0)).body == b"ok"
        with pytest.raises(RemoteServerError, match="EOF"):
            await servers.call(server, exchange(), 5.0)
    finally:
        listener.close()
