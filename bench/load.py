"""A small load generator: many keep-alive TLS connections, one request in flight on each, answers read but not parsed.

It is kept lean so that it does not become what is measured; where a server's process id is known, its CPU time per
request is reported beside the rate, and that number does not depend on the generator at all."""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import cast
from urllib.parse import urlsplit

TICKS = os.sysconf("SC_CLK_TCK")


@cache
def _any_server() -> ssl.SSLContext:
    """One for all connections: making one takes longer than a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass(slots=True)
class Target:
    """A server under test."""

    name: str
    url: str
    token: str
    pids: tuple[int, ...] = ()

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    @property
    def tls(self) -> ssl.SSLContext | None:
        return _any_server() if self.url.startswith("https") else None

    def cpu(self) -> float:
        """Seconds of CPU that the server's processes have used."""
        total = 0.0
        for pid in self.pids:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) / TICKS
        return total

    def memory(self) -> int:
        """Bytes resident."""
        total = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/status") as file:
                for line in file:
                    if line.startswith("VmRSS"):
                        total += int(line.split()[1]) * 1024
        return total

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {self.token}\r\n"
            f"Accept: application/json\r\nUser-Agent: bench/1\r\n"
        )
        if body:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        return head.encode() + b"\r\n" + body


class Connection(asyncio.Protocol):
    """Sends one request at a time; the future resolves to (status, bytes of the body)."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: asyncio.Future[tuple[int, int]] | None = None
        self._need = -1
        self._status = 0
        self._chunked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("closed"))

    def send(self, data: bytes) -> asyncio.Future[tuple[int, int]]:
        assert self.transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._need < 0:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end]).lower()
            self._status = int(head[9:12])
            at = head.find(b"content-length:")
            self._chunked = at < 0
            self._need = end + 4 + (0 if at < 0 else int(head[at + 15 :].split(b"\r\n", 1)[0]))
        if self._chunked:
            if not self._buffer.endswith(b"0\r\n\r\n"):
                return
        elif len(self._buffer) < self._need:
            return
        size = len(self._buffer)
        self._buffer.clear()
        self._need = -1
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result((self._status, size))


async def connect(target: Target) -> Connection:
    loop = asyncio.get_running_loop()
    host, port = target.address
    _, protocol = await loop.create_connection(Connection, host, port, ssl=target.tls)
    return protocol


@dataclass(slots=True)
class Result:
    count: int
    seconds: float
    cpu: float
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_each(self) -> float:
        """Microseconds of server CPU per request; 0 when the process is not known."""
        return self.cpu / self.count * 1e6 if self.count else 0.0


async def run(target: Target, make: Callable[[int], Iterator[bytes]], *, connections: int, seconds: float) -> Result:
    """Each connection takes its requests from `make(connection number)` until the time is up."""
    opened = [await connect(target) for _ in range(connections)]
    latencies: list[float] = []
    deadline = time.perf_counter() + seconds

    async def work(number: int, connection: Connection) -> None:
        for request in make(number):
            began = time.perf_counter()
            if began >= deadline:
                return
            status, _ = await connection.send(request)
            latencies.append(time.perf_counter() - began)
            if status >= 400:
                raise RuntimeError(f"{target.name} answered {status} to {request[:200]!r}")

    cpu, began = target.cpu(), time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number, connection in enumerate(opened):
            tasks.create_task(work(number, connection))
    took, used = time.perf_counter() - began, target.cpu() - cpu
    for connection in opened:
        if connection.transport is not None:
            connection.transport.abort()
    latencies.sort()
    return Result(len(latencies), took, used, latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)])
