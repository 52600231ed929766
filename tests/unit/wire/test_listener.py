"""Accepting connections: handshakes, their limits, and addresses in use."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from datetime import UTC, datetime

import pytest
from http_harness import Serve, echo, until

from setpoint.cluster.certificates import CertificateFiles, ensure_certificates, server_context
from setpoint.wire.limits import Limits
from setpoint.wire.listener import Listener, listen, reserve

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("pki"), datetime.now(UTC))


async def test_too_many_incomplete_handshakes_abort_the_oldest(serve: Serve, files: CertificateFiles) -> None:
    served = await serve(echo, ssl=server_context(files, files.ca), limits=Limits(handshakes=3))
    listening = served.server._listener
    assert listening is not None
    silent = []
    for count in range(1, 4):
        silent.append(await served.connect())
        await until(lambda count=count: len(listening._handshakes) == count)  # type: ignore[misc]
    client = await served.connect(ssl.create_default_context(cafile=str(files.ca)))
    client.send(GET)
    assert (await client.answer()).status == 200
    assert await silent[0].rest() == b""
    assert not silent[1].reader.at_eof() and not silent[2].reader.at_eof()
    await until(lambda: len(listening._handshakes) == 2)


async def test_an_invalid_handshake_does_not_affect_other_connections(serve: Serve, files: CertificateFiles) -> None:
    served = await serve(echo, ssl=server_context(files, files.ca))
    connection = await served.connect()
    connection.send(GET)
    await connection.rest()
    client = await served.connect(ssl.create_default_context(cafile=str(files.ca)))
    client.send(GET)
    assert (await client.answer()).status == 200


async def test_a_stop_does_not_wait_for_handshakes(serve: Serve, files: CertificateFiles) -> None:
    served = await serve(echo, ssl=server_context(files, files.ca))
    silent = await served.connect()
    listening = served.server._listener
    assert listening is not None
    await until(lambda: len(listening._handshakes) == 1)
    await served.server.stop(10)
    assert await silent.rest() == b""
    with pytest.raises(OSError):
        await asyncio.open_connection(*served.address)


class Exhausted(socket.socket):
    """A listener of a process that may open nothing more."""

    full = True

    def accept(self) -> tuple[socket.socket, object]:
        if self.full:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_accepting_is_retried_when_file_descriptors_run_out(caplog: pytest.LogCaptureFixture) -> None:
    listener = Exhausted(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    come: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        come.append(asyncio.Protocol())
        return come[-1]

    listening = Listener([listener], make, None, Limits())
    _, writer = await asyncio.open_connection(*listener.getsockname())
    with caplog.at_level(logging.ERROR):
        await until(lambda: listening._paused is not None)
    assert "cannot accept another connection: Too many open files; trying again in 1 s" in caplog.text
    assert not come
    listener.full = False
    listening._listen()
    await until(lambda: len(come) == 1)
    writer.close()
    await listening.close()


async def test_a_reserved_port_is_for_shared_listeners() -> None:
    reserved = await reserve("127.0.0.1", 0)
    port = reserved[0].getsockname()[1]
    sockets = [*reserved, *await listen("127.0.0.1", port, shared=True), *await listen("127.0.0.1", port, shared=True)]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    # Another server, even one that shares its port among processes too, does not get connections of this one.
    for attempt in (reserve, listen):
        with pytest.raises(OSError) as failure:
            await attempt("127.0.0.1", port)
        assert failure.value.errno == errno.EADDRINUSE
    for each in sockets:
        each.close()


async def test_an_address_in_use_leaves_no_open_sockets() -> None:
    (taken,) = await listen("127.0.0.1", 0)
    with taken, pytest.raises(OSError) as failure:
        await listen("127.0.0.1", taken.getsockname()[1])
    assert failure.value.errno == errno.EADDRINUSE
