"""The server over TLS."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from http_harness import SMALL_LIMITS, Recorder, Serve, echo

from setpoint.cluster.certificates import (
    CertificateFiles,
    ensure_certificates,
    issue_client_certificate,
    server_context,
)
from setpoint.wire.message import (
    Answer,
    RawConnection,
    Request,
    Response,
    StreamResponse,
    StreamWriter,
    UpgradeResponse,
    encode_chunk,
)

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"), datetime.now(UTC))


@pytest.fixture
def trusting(files: CertificateFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.ca))


def show_certificate(context: ssl.SSLContext, issuer: CertificateFiles, directory: Path) -> bytes:
    pem, key = issue_client_certificate(issuer, "admin", ["system:masters"], datetime.now(UTC))
    (directory / "client.crt").write_bytes(pem)
    (directory / "client.key").write_bytes(key)
    context.load_cert_chain(directory / "client.crt", directory / "client.key")
    return ssl.PEM_cert_to_DER_cert(pem.decode())


async def test_requests_over_tls(serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext) -> None:
    recorder = Recorder()
    trusting.set_alpn_protocols(["h2", "http/1.1"])
    client = await (await serve(recorder, ssl=server_context(files, files.ca))).connect(trusting)
    tls = client.writer.get_extra_info("ssl_object")
    assert tls.selected_alpn_protocol() == "http/1.1"
    assert tls.version() == "TLSv1.3"
    for _ in range(3):
        client.send(GET)
        assert (await client.answer()).body == b"GET /a [] 0"
    assert recorder.seen[0].peer.certificate is None


async def test_the_peer_has_the_client_certificate(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    recorder = Recorder()
    shown = show_certificate(trusting, files, tmp_path)
    client = await (await serve(recorder, ssl=server_context(files, files.ca))).connect(trusting)
    client.send(GET)
    await client.answer()
    assert recorder.seen[0].peer.certificate == shown


async def test_an_unrequested_client_certificate_is_ignored(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    recorder = Recorder()
    show_certificate(trusting, files, tmp_path)
    client = await (await serve(recorder, ssl=server_context(files))).connect(trusting)
    client.send(GET)
    await client.answer()
    assert recorder.seen[0].peer.certificate is None


async def test_a_certificate_of_another_authority_is_rejected(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    recorder = Recorder()
    untrusted = ensure_certificates(tmp_path / "other", datetime.now(UTC))
    show_certificate(trusting, untrusted, tmp_path)
    served = await serve(recorder, ssl=server_context(files, files.ca))
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        client = await served.connect(trusting)
        client.send(GET)
        await client.answer()
    assert recorder.seen == []


@pytest.mark.filterwarnings("ignore:.*TLSv1_1 is deprecated")
async def test_old_tls_versions_and_plain_http_are_rejected(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext
) -> None:
    served = await serve(echo, ssl=server_context(files))
    trusting.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    trusting.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await served.connect(trusting)
    client = await served.connect()
    client.send(GET)
    assert b"200" not in await client.rest()


async def test_large_bodies_in_both_directions(serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, [request.body[:5], request.body[5:]])

    client = await (await serve(handler, ssl=server_context(files))).connect(trusting)
    body = bytes(range(256)) * 8192
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (await client.answer()).body == body
    client.send(b"POST / HTTP/1.1\r\nAccept-Encoding: gzip\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert gzip.decompress((await client.answer()).body) == body


async def test_bodies_over_the_limit_are_rejected_over_tls(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext
) -> None:
    client = await (await serve(echo, ssl=server_context(files), limits=SMALL_LIMITS)).connect(trusting)
    client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + b"x" * 500_000)
    assert (await client.answer()).status == 413


async def test_streams_over_tls_are_cancelled_and_ended(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext
) -> None:
    cancelled = asyncio.Event()

    async def run(writer: StreamWriter) -> None:
        writer.write_chunks(encode_chunk(b"first"))
        try:
            await writer.closed()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def handler(request: Request) -> Answer:
        return StreamResponse(200, [], run)

    served = await serve(handler, ssl=server_context(files))
    gone, stays = await served.connect(trusting), await served.connect(trusting)
    for client in (gone, stays):
        client.send(GET)
        await client.head()
        assert await client.chunk() == b"first"
    gone.close()
    await cancelled.wait()
    await served.server.stop(5)
    assert await stays.rest() == b"0\r\n\r\n"
    assert not served.server._tasks


async def test_upgrades_over_tls(serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext) -> None:
    async def run(raw: RawConnection) -> None:
        raw.write(b"hello " + await raw.read())

    async def handler(request: Request) -> Answer:
        return UpgradeResponse([("Upgrade", "websocket")], run)

    client = await (await serve(handler, ssl=server_context(files))).connect(trusting)
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert (await client.head()).status == 101
    client.send(b"you")
    assert await client.rest() == b"hello you"


async def test_plain_http_is_answered_as_go_does(serve: Serve, files: CertificateFiles) -> None:
    client = await (await serve(echo, ssl=server_context(files))).connect()
    client.send(GET)
    text = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
    assert await asyncio.wait_for(client.reader.read(), 5) == text


async def test_bytes_that_are_neither_tls_nor_http_get_no_response(serve: Serve, files: CertificateFiles) -> None:
    client = await (await serve(echo, ssl=server_context(files))).connect()
    client.send(b"\x00" * 100)
    assert b"HTTP" not in await asyncio.wait_for(client.reader.read(), 5)


def test_no_suite_of_tls_1_2_uses_cbc(files: CertificateFiles) -> None:
    suites = server_context(files).get_ciphers()
    assert all(suite["aead"] for suite in suites), [suite["name"] for suite in suites if not suite["aead"]]
    assert {suite["protocol"] for suite in suites} == {"TLSv1.2", "TLSv1.3"}


async def test_nothing_is_written_once_the_client_has_closed(
    serve: Serve, files: CertificateFiles, trusting: ssl.SSLContext, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def run(writer: StreamWriter) -> None:
        try:
            writer.write(b"begun")
            await writer.closed()
        finally:
            for _ in range(20):
                writer.write(b"too late")
            ended.set()

    async def stream(request: Request) -> Answer:
        return StreamResponse(200, [], run)

    client = await (await serve(stream, ssl=server_context(files))).connect(trusting)
    client.send(GET)
    await client.reader.readuntil(b"begun\r\n")
    client.writer.close()
    await asyncio.wait_for(ended.wait(), 5)
    assert [record.getMessage() for record in caplog.records if record.levelno >= 30] == []
