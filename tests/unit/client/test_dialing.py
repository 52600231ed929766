"""Connecting to one of several addresses: the first that works, and never more than one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import pytest
from blocking_in_thread import TRANSPORTS, Make

from setpoint.client import Unreachable
from setpoint.client.dialing import ATTEMPT_DELAY, first_connected, is_ip_address
from setpoint.client.kubeconfig import Access
from setpoint.testing.virtual_time import VirtualLoop
from setpoint.wire.client_connection import ClientConnection

Attempt = Callable[[], Coroutine[Any, Any, ClientConnection]]


class Attempts:
    """Attempts that end as the test says, and when each of them began."""

    def __init__(self) -> None:
        self.began: dict[str, float] = {}
        self.aborted: list[str] = []
        self.cancelled: list[str] = []

    def attempt(self, name: str, after: float, error: OSError | None = None) -> Attempt:
        return partial(self._run, name, after, error)

    async def _run(self, name: str, after: float, error: OSError | None) -> ClientConnection:
        self.began[name] = asyncio.get_running_loop().time()
        try:
            await asyncio.sleep(after)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if error is not None:
            raise error
        connection = ClientConnection()
        connection.abort = lambda: self.aborted.append(name)  # type: ignore[method-assign]
        connection.name = name  # type: ignore[attr-defined]
        return connection


def dialled(*attempts: Attempt) -> tuple[str, float]:
    """Which one was returned, and when."""

    async def run() -> tuple[str, float]:
        connection = await first_connected(attempts)
        return connection.name, asyncio.get_running_loop().time()  # type: ignore[attr-defined]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


def test_the_second_address_is_not_tried_if_the_first_connects_in_time() -> None:
    made = Attempts()
    assert dialled(made.attempt("a", 0.9), made.attempt("b", 0.1)) == ("a", 0.9)
    assert list(made.began) == ["a"]


def test_after_a_refusal_the_next_address_is_tried_at_once() -> None:
    made = Attempts()
    attempts = [made.attempt("a", 0.1, OSError()), made.attempt("b", 0.1, OSError()), made.attempt("c", 0.1)]
    name, at = dialled(*attempts)
    assert (name, round(at, 3)) == ("c", 0.3)


def test_an_attempt_that_hangs_is_abandoned_when_another_connects() -> None:
    made = Attempts()
    name, at = dialled(made.attempt("a", 60.0), made.attempt("b", 60.0), made.attempt("c", 0.5))
    assert (name, at) == ("c", 2 * ATTEMPT_DELAY + 0.5)
    assert sorted(made.cancelled) == ["a", "b"]


def test_of_two_simultaneous_connections_one_is_closed() -> None:
    made = Attempts()
    assert dialled(made.attempt("a", ATTEMPT_DELAY + 0.5), made.attempt("b", 0.5))[0] == "a"
    assert made.aborted == ["b"]


def test_the_error_of_the_first_address_is_raised() -> None:
    made = Attempts()
    with pytest.raises(ConnectionRefusedError):
        dialled(made.attempt("a", 0.2, ConnectionRefusedError()), made.attempt("b", 0.1, TimeoutError()))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0", "2001:db8::7"])
def test_ip_addresses_are_recognized(host: str) -> None:
    assert is_ip_address(host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1.example.com", "", "1.2.3", "a::b::c"])
def test_host_names_are_not_ip_addresses(host: str) -> None:
    assert not is_ip_address(host)


# A name with several addresses.


async def server(host: str, port: int) -> tuple[asyncio.Server, int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = host.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    started = await asyncio.start_server(serve, host, port)
    return started, started.sockets[0].getsockname()[1]


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of the name `api.test`."""
    found = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
    real = socket.getaddrinfo

    def resolve(host: str | bytes, port: int, *args: Any, **options: Any) -> Sequence[Any]:
        if host not in ("api.test", b"api.test"):
            return real(host, port, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return found


@pytest.mark.parametrize("make", TRANSPORTS.values(), ids=TRANSPORTS)
async def test_every_address_of_a_name_is_tried(make: Make, addresses: list[str]) -> None:
    third, port = await server("127.0.0.4", 0)
    transport = make(Access(f"http://api.test:{port}"))
    try:
        assert (await transport.request("GET", "/", "", (), b"")).body == b"127.0.0.4"
        second, _ = await server("127.0.0.3", port)
        # The address that worked is tried first, as long as the name has it.
        assert (await transport.request("GET", "/", "", (), b"")).body == b"127.0.0.4"
        addresses.remove("127.0.0.4")
        assert (await transport.request("GET", "/", "", (), b"")).body == b"127.0.0.3"
        second.close()
        await second.wait_closed()
        with pytest.raises(Unreachable, match="refused"):
            await transport.request("GET", "/", "", (), b"")
    finally:
        third.close()
        await transport.close()
