"""Sessions with commands over the streaming server of a container runtime, which a script plays here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from connection_pair import End, connection_pair, messages_of, output_of

from setpoint.meta.objects import Obj
from setpoint.node.cri.client import CriError
from setpoint.node.host.cri_sessions import CriSessions
from setpoint.node.host.stream_client import RemoteProcess, StreamServerError
from setpoint.node.kubelet_api.interface import KubeletApiError, StreamOptions, StreamSession
from setpoint.node.kubelet_api.remote_streams import (
    RESIZE,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    SUCCESS,
    SpdyStreams,
    WebSocketStreams,
    failure,
)
from setpoint.system import SystemClock
from setpoint.wire.grpc import Code
from setpoint.wire.spdy import SpdyConnection
from setpoint.wire.websocket import WebSocket

ALL = StreamOptions(stdin=True, stdout=True, stderr=True, tty=False)
TERMINAL = StreamOptions(stdin=True, stdout=True, stderr=False, tty=True)
Play = Callable[[SpdyStreams], Awaitable[None]]


class Wire:
    """A RawConnection over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> bytes:
        try:
            return await self._reader.read(65536)
        except OSError:
            return b""

    async def drained(self) -> None:
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class StreamingServer:
    """Upgrades every request and lets `play` serve its streams."""

    def __init__(self, play: Play, channels: list[int], answer: bytes = b"") -> None:
        self._play = play
        self._channels = channels
        self._answer = answer
        self.heads: list[str] = []
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        if self._answer:
            writer.write(self._answer)
            writer.close()
            return
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
        )
        streams = SpdyStreams(SpdyConnection(Wire(reader, writer)), "v4.channel.k8s.io")
        try:
            if await streams.open(self._channels):
                with suppress(OSError):
                    await self._play(streams)
                    await streams.drained()
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def streaming(server: StreamingServer) -> AsyncIterator[str]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/exec/token?x=1"
    finally:
        listener.close()


class Runtime:
    """A container runtime that answers all calls with a URL, or an error."""

    def __init__(self, url: str = "", error: CriError | None = None) -> None:
        self._url, self._error = url, error
        self.calls: list[tuple[str, Any]] = []

    async def call(self, method: str, request: Any = None, *, timeout: float = 0.0) -> Any:
        self.calls.append((method, request))
        if self._error is not None:
            raise self._error
        return SimpleNamespace(url=self._url)


@asynccontextmanager
async def websocket_client(session: StreamSession) -> AsyncIterator[WebSocket]:
    """Connect a client over a WebSocket to a session, and wait for its end."""
    here, there = connection_pair()

    async def serve() -> None:
        await session(WebSocketStreams(WebSocket(there), "v5.channel.k8s.io"))
        there.close()

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(serve())
        yield WebSocket(here, is_client=True)
        here.close()


async def count_input(streams: SpdyStreams) -> None:
    """Count the bytes of the input, as `wc -c; exit 5` does."""
    total = 0
    while (received := await streams.receive()) is not None:
        if received.channel == STDIN and received.data is None:
            streams.write(STDOUT, b"%d" % total)
            streams.write(STDERR, b"done")
            streams.finish(failure(5))
            return
        total += len(received.data or b"")


async def test_input_that_ends_and_exit_code() -> None:
    server = StreamingServer(count_input, [STATUS, STDIN, STDOUT, STDERR])
    async with streaming(server) as url:
        runtime = Runtime(url)
        session = await CriSessions(runtime, SystemClock()).exec("id", ["wc", "-c"], ALL)
        async with websocket_client(session) as socket:
            for _ in range(10):
                socket.send(bytes((STDIN,)) + b"x" * 10_000)
            socket.send(bytes((255, STDIN)))
            found = await messages_of(socket)
    assert runtime.calls == [
        (
            "Exec",
            {"container_id": "id", "cmd": ["wc", "-c"], "tty": False, "stdin": True, "stdout": True, "stderr": True},
        )
    ]
    assert server.heads[0].startswith("POST /exec/token?x=1 HTTP/1.1\r\n")
    assert (found[STDOUT], found[STDERR]) == (b"100000", b"done")
    assert orjson.loads(found[STATUS]) == failure(5)


async def test_spdy_client_is_connected_to_spdy_server() -> None:
    async with streaming(StreamingServer(count_input, [STATUS, STDIN, STDOUT, STDERR])) as url:
        session = await CriSessions(Runtime(url), SystemClock()).exec("id", ["wc"], ALL)
        here, there = connection_pair()

        async def serve() -> None:
            streams = SpdyStreams(SpdyConnection(there), "v4.channel.k8s.io")
            assert await streams.open([STATUS, STDIN, STDOUT, STDERR])
            await session(streams)

        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve())
            process = RemoteProcess(here, [STATUS, STDIN, STDOUT, STDERR])
            await process.accepted()
            process.write(STDIN, b"x" * 100_000)
            process.close_channel(STDIN)
            found = await output_of(process)
    assert found[STDOUT] == b"100000" and orjson.loads(found[STATUS]) == failure(5)


async def test_sizes_of_the_terminal() -> None:
    async def play(streams: SpdyStreams) -> None:
        received = await streams.receive()
        assert received is not None and received.channel == RESIZE and received.data is not None
        streams.write(STDOUT, received.data)
        streams.finish(SUCCESS)

    async with streaming(StreamingServer(play, [STATUS, STDIN, STDOUT])) as url:
        runtime = Runtime(url)
        session = await CriSessions(runtime, SystemClock()).attach("id", ALL, tty=True)
        async with websocket_client(session) as socket:
            socket.send(bytes((RESIZE,)) + b'{"Width":80,"Height":24}')
            found = await messages_of(socket)
    method, request = runtime.calls[0]
    assert method == "Attach" and request["tty"] and not request["stderr"], "a terminal has one output stream"
    assert found[STDOUT] == b'{"Width":80,"Height":24}' and orjson.loads(found[STATUS]) == SUCCESS


async def test_the_command_is_disconnected_when_the_client_is_gone() -> None:
    async def play(streams: SpdyStreams) -> None:
        streams.write(STDOUT, b"started")
        while await streams.receive() is not None:
            pass

    server = StreamingServer(play, [STATUS, STDIN, STDOUT, STDERR])
    async with streaming(server) as url:
        session = await CriSessions(Runtime(url), SystemClock()).exec("id", ["sleep"], ALL)
        async with websocket_client(session) as socket:
            assert await socket.receive() == bytes((STDOUT,)) + b"started"
        async with asyncio.timeout(10):
            await server.ended.wait()


async def test_output_is_not_buffered_for_a_client_that_does_not_read() -> None:
    written = 0

    async def play(streams: SpdyStreams) -> None:
        nonlocal written
        while True:
            streams.write(STDOUT, b"x" * 65536)
            await streams.drained()
            written += 65536

    class Slow(End):
        async def drained(self) -> None:
            await asyncio.Event().wait()

    async with streaming(StreamingServer(play, [STATUS, STDIN, STDOUT, STDERR])) as url:
        session = await CriSessions(Runtime(url), SystemClock()).exec("id", ["yes"], ALL)
        slow = Slow()

        async def serve() -> None:
            await session(WebSocketStreams(WebSocket(slow), "v5.channel.k8s.io"))

        task = asyncio.ensure_future(serve())
        before = -1
        while before != written:  # until everything on the way is full
            before = written
            await asyncio.sleep(0.2)
        assert 0 < written < 20_000_000
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("answer", "url", "wanted"),
    [
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 18\r\n\r\n404 page not found",
            "",
            "error executing command in container: unable to upgrade connection: 404 page not found",
        ),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n",
            "",
            "the streaming server of the container runtime chose protocol ''",
        ),
        (b"", "http://192.0.2.1:1/exec", "must listen on a loopback address"),
        (b"", "https://127.0.0.1:1/exec", "must listen on a loopback address"),
        (b"nonsense", "", "error executing command in container: "),
    ],
)
async def test_failures_of_the_streaming_server(answer: bytes, url: str, wanted: str) -> None:
    async with streaming(StreamingServer(count_input, [], answer)) as own:
        session = await CriSessions(Runtime(url or own), SystemClock()).exec("id", ["x"], ALL)
        async with websocket_client(session) as socket:
            status = orjson.loads((await messages_of(socket))[STATUS])
    assert status["reason"] == "InternalError" and wanted in status["message"]


async def test_a_server_that_ends_without_a_status() -> None:
    async def play(streams: SpdyStreams) -> None:
        streams.write(STDOUT, b"part")

    async with streaming(StreamingServer(play, [STATUS, STDIN, STDOUT, STDERR])) as url:
        session = await CriSessions(Runtime(url), SystemClock()).exec("id", ["x"], ALL)
        async with websocket_client(session) as socket:
            found = await messages_of(socket)
    status: Obj = orjson.loads(found[STATUS])
    assert found[STDOUT] == b"part" and status["reason"] == "InternalError"
    assert "before it reported how the command ended" in status["message"]


@pytest.mark.parametrize(
    ("code", "status"), [(Code.NOT_FOUND, 404), (Code.RESOURCE_EXHAUSTED, 429), (Code.UNKNOWN, 500)]
)
async def test_errors_of_the_runtime_have_the_kubelets_codes(code: Code, status: int) -> None:
    sessions = CriSessions(Runtime(error=CriError(code, "why")), SystemClock())
    with pytest.raises(KubeletApiError) as raised:
        await sessions.exec("id", ["x"], TERMINAL)
    assert raised.value.status == status and raised.value.text.endswith(" desc = why")


async def test_nothing_is_sent_before_the_server_has_accepted_all_streams() -> None:
    """containerd discards data that arrives before its reply."""
    here, there = connection_pair()
    process, server = RemoteProcess(here, [STATUS, STDIN]), SpdyConnection(there)
    accepting = asyncio.ensure_future(process.accepted())
    for _ in range(2):
        await asyncio.sleep(0)
        assert not accepting.done()
        await server.receive()
    async with asyncio.timeout(5):
        await accepting
    refused = RemoteProcess(here, [STATUS])
    there.close()
    with pytest.raises(StreamServerError):
        await refused.accepted()
