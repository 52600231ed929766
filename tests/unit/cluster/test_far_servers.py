"""Over a real socket with TLS: whom we believe, what we show, what we take for an answer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from setpoint.apiserver.far_server import FarServer, FarServerProblem
from setpoint.apiserver.http.certificates import CertificateFiles, ensure_certificates, server_context
from setpoint.apiserver.http.message import Peer, Request, Response, StreamResponse
from setpoint.cluster.far_servers import NetworkServers
from setpoint.cluster.front_proxy import FrontProxy
from setpoint.system import SystemClock

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


def asks(path: str = "/x") -> Request:
    return Request("POST", path, "timeout=30s", {"content-type": "application/json"}, b"{}", Peer())


async def test_an_answer_comes_whole(files: CertificateFiles) -> None:
    heads = []

    def reply(head: bytes, _: dict[str, object]) -> bytes:
        heads.append(head)
        return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"

    async with listening(server_context(files), reply) as port:
        server = FarServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes(), shown="far.default.svc:443")
        response = await NetworkServers(SystemClock()).post(server, asks(), 5.0)
    assert (response.status, response.body) == (200, b"abcde")
    assert heads[0].startswith(b"POST /x?timeout=30s HTTP/1.1\r\nhost: far.default.svc:443\r\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda server: FarServer(server.host, server.port, server.name), "tls: failed to verify certificate"),
        (lambda server: FarServer(server.host, server.port, "other.svc", server.authority), "tls: failed to verify"),
        (lambda server: FarServer(server.host, 1, server.name), "dial tcp 127.0.0.1:1: connect: connection refused"),
    ],
)
async def test_who_is_not_believed_is_not_asked(
    files: CertificateFiles, change: Callable[[FarServer], FarServer], said: str
) -> None:
    def reply(head: bytes, _: dict[str, object]) -> bytes:
        raise AssertionError("nothing is to be sent")

    async with listening(server_context(files), reply) as port:
        server = FarServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes())
        with pytest.raises(FarServerProblem, match=said):
            await NetworkServers(SystemClock()).post(change(server), asks(), 5.0)


async def test_insecure_means_that_nothing_is_checked(files: CertificateFiles) -> None:
    async with listening(server_context(files), lambda head, _: b"HTTP/1.1 204 No Content\r\n\r\n") as port:
        response = await NetworkServers(SystemClock()).post(FarServer("127.0.0.1", port, insecure=True), asks(), 5.0)
    assert response.status == 204


@pytest.mark.parametrize("reply", [b"", b"SSH-2.0\r\n\r\n"])
async def test_silence_and_gibberish_are_no_answers(files: CertificateFiles, reply: bytes) -> None:
    async with listening(server_context(files), lambda head, _: reply) as port:
        server = FarServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes())
        with pytest.raises(FarServerProblem, match="EOF"):
            await NetworkServers(SystemClock()).post(server, asks(), 5.0)


async def test_only_where_we_speak_for_others_we_show_who_we_are(files: CertificateFiles, tmp_path: Path) -> None:
    seen: list[object] = []
    front = FrontProxy(files, SystemClock())
    servers = NetworkServers(SystemClock(), lambda: front.certificate)

    def reply(head: bytes, peer: dict[str, object]) -> bytes:
        seen.append(peer.get("subject"))
        return b"HTTP/1.1 302 Found\r\nlocation: https://elsewhere\r\ncontent-length: 2\r\n\r\nno"

    context = server_context(files, files.ca.with_name("front-proxy") / "ca.crt" if front.certificate else None)
    async with listening(context, reply) as port:
        for as_proxy in (False, True):
            server = FarServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes(), as_proxy=as_proxy)
            answer = await servers.ask(server, asks(), 5.0)
            assert isinstance(answer, Response | StreamResponse)
            assert answer.status == 302  # and nobody went there
            if isinstance(answer, StreamResponse):
                await answer.run(_Nobody())
    assert seen == [None, ((("commonName", "front-proxy-client"),),)]


class _Nobody:
    """Takes everything."""

    buffered = 0

    def write(self, data: bytes) -> None: ...

    def write_frames(self, frames: bytes) -> None: ...

    async def drained(self) -> None: ...

    def closed(self) -> Awaitable[None]:
        return asyncio.get_running_loop().create_future()


async def test_who_is_asked_often_keeps_a_connection(files: CertificateFiles) -> None:
    """As long as the other end does; one that it has closed in the meantime is no failure."""
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
    server = FarServer("127.0.0.1", port, "far.default.svc", files.ca.read_bytes(), kept=True)
    try:
        for _ in range(5):
            assert (await servers.post(server, asks(), 5.0)).body == b"ok"
        assert served == [3, 2]
        hang_up.set()
        assert (await servers.post(server, asks(), 5.0)).body == b"ok"
        with pytest.raises(FarServerProblem, match="EOF"):
            await servers.post(server, asks(), 5.0)
    finally:
        listener.close()
