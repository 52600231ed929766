"""Two ends of a connection within the process, and a client of the kubelet's API that uses them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from setpoint.node.host.stream_client import RemoteProcess
from setpoint.node.kubelet_api.api import KubeletApi
from setpoint.node.kubelet_api.interface import BufferedResponse, NodeRequest, StreamedResponse, UpgradedResponse
from setpoint.node.kubelet_api.remote_streams import STATUS
from setpoint.wire.websocket import WebSocket

NODE = "n"
_KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class End:
    """A RawConnection. What is written at one end is read at the other; at most 16 pieces are in between."""

    def __init__(self) -> None:
        self.other: End = self
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._read = asyncio.Event()
        self.closed = False

    def write(self, data: bytes) -> None:
        if not self.closed and data:
            self.other._received.put_nowait(bytes(data))

    async def read(self) -> bytes:
        data = await self._received.get()
        self._read.set()
        return data

    async def drained(self) -> None:
        while self.other._received.qsize() > 16 and not self.other.closed:
            self.other._read.clear()
            await self.other._read.wait()
        if self.other.closed:
            raise ConnectionResetError("the other end is closed")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.other._received.put_nowait(b"")
            self._read.set()


def connection_pair() -> tuple[End, End]:
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


class KubeletClient:
    """Sends requests to the kubelet's API, as the API server does."""

    def __init__(self, api: KubeletApi) -> None:
        self._api = api

    async def get(self, target: str, method: str = "GET") -> tuple[int, bytes]:
        answer = await self._api.handle(self._request(target, {}, method))
        if isinstance(answer, StreamedResponse):
            return 200, b"".join([piece async for piece in answer.chunks])
        assert isinstance(answer, BufferedResponse), answer
        return answer.status, answer.body

    async def follow(self, target: str) -> AsyncIterator[bytes]:
        answer = await self._api.handle(self._request(target, {}))
        assert isinstance(answer, StreamedResponse), answer
        return answer.chunks

    @asynccontextmanager
    async def websocket(self, target: str, protocol: str) -> AsyncIterator[WebSocket]:
        """Open a WebSocket with a subprotocol."""
        headers = {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-version": "13",
            "sec-websocket-key": _KEY,
            "sec-websocket-protocol": protocol,
        }
        async with self._upgraded(target, headers) as end:
            yield WebSocket(end, is_client=True)

    @asynccontextmanager
    async def spdy(self, target: str, channels: list[int]) -> AsyncIterator[RemoteProcess]:
        """Open the streams of a command over SPDY."""
        headers = {"upgrade": "SPDY/3.1", "connection": "Upgrade", "x-stream-protocol-version": "v4.channel.k8s.io"}
        async with self._upgraded(target, headers) as end:
            process = RemoteProcess(end, channels)
            await process.accepted()
            yield process

    @asynccontextmanager
    async def _upgraded(self, target: str, headers: dict[str, str]) -> AsyncIterator[End]:
        answer = await self._api.handle(self._request(target, headers))
        assert isinstance(answer, UpgradedResponse), answer
        here, there = connection_pair()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(_served(answer.run, there))
            try:
                yield here
            finally:
                here.close()
            await serving

    @staticmethod
    def _request(target: str, headers: dict[str, str], method: str = "GET") -> NodeRequest:
        parts = urlsplit(target)
        return NodeRequest(NODE, method, parts.path, parse_qs(parts.query), headers)


async def _served(run: Callable[[End], Any], end: End) -> None:
    try:
        await run(end)
    finally:
        end.close()


async def output_of(process: RemoteProcess) -> dict[int, bytes]:
    """Return everything that a command writes, by channel, until its status has arrived."""
    found: dict[int, bytearray] = {}
    while (received := await process.receive()) is not None:
        found.setdefault(received.channel, bytearray()).extend(received.data or b"")
        if received.channel == STATUS and received.data is None:
            break
    return {channel: bytes(data) for channel, data in found.items()}


async def messages_of(socket: WebSocket) -> dict[int, bytes]:
    """Return everything that arrives over a WebSocket with channels, by channel."""
    found: dict[int, bytearray] = {}
    while (message := await socket.receive()) is not None:
        found.setdefault(message[0], bytearray()).extend(message[1:])
    return {channel: bytes(data) for channel, data in found.items()}
