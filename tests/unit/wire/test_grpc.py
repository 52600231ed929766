"""The gRPC client against an independent server: the C core of grpc."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from setpoint.cluster.certificates import ensure_certificates
from setpoint.system import SystemClock
from setpoint.wire.grpc import Call, Channel, Code, GrpcError
from setpoint.wire.tls import TlsClient, Trust

grpc = pytest.importorskip("grpc")
ECHO, FAIL, SLEEP, CHAT, COUNT = (f"/test.Service/{name}" for name in ("Echo", "Fail", "Sleep", "Chat", "Count"))


class Service:
    """The methods of the test server, which run in threads; messages are bytes."""

    def __init__(self) -> None:
        self.started, self.ended = threading.Event(), threading.Event()
        """Set when a call of `sleep` has begun, and when it is over."""

    def echo(self, request: bytes, context: Any) -> bytes:
        return request

    def fail(self, request: bytes, context: Any) -> bytes:
        if request == b"deadline":
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "timeout 1s exceeded")
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "mvcc: 100% of 'größe' used")
        return b""

    def sleep(self, request: bytes, context: Any) -> bytes:
        if not context.add_callback(self.ended.set):  # it is over already
            self.ended.set()
        self.started.set()
        self.ended.wait(60)
        return b""

    def chat(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        for request in requests:
            yield request.upper()

    def count(self, request: bytes, context: Any) -> Iterator[bytes]:
        for number in range(int(request)):
            yield b"%d" % number * 1000

    def handlers(self) -> Any:
        unary, both, down = (
            grpc.unary_unary_rpc_method_handler,
            grpc.stream_stream_rpc_method_handler,
            grpc.unary_stream_rpc_method_handler,
        )
        methods = {"Echo": unary(self.echo), "Fail": unary(self.fail), "Sleep": unary(self.sleep)}
        methods |= {"Chat": both(self.chat), "Count": down(self.count)}
        return grpc.method_handlers_generic_handler("test.Service", methods)


class Running(NamedTuple):
    server: Any
    port: int


class Received:
    """The messages and the end of a stream."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.end: asyncio.Future[GrpcError | None] = asyncio.get_running_loop().create_future()

    def start(self, channel: Channel, method: str) -> Call:
        return channel.stream(method, self.messages.append, self.end.set_result)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 (some conditions come true in threads)
            await asyncio.sleep(0.01)


@pytest.fixture
async def service() -> Service:
    return Service()


@pytest.fixture
async def server(service: Service, tmp_path: Path) -> AsyncIterator[Running]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_concurrent_streams", 50)]
    server = grpc.server(ThreadPoolExecutor(8), [service.handlers()], options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.add_insecure_port(f"unix://{tmp_path}/grpc.sock")
    server.start()
    yield Running(server, port)
    server.stop(0)


@pytest.fixture
async def channel(server: Running) -> AsyncIterator[Channel]:
    channel = await Channel.connect(f"http://127.0.0.1:{server.port}")
    yield channel
    channel.close()


async def test_a_unary_call(channel: Channel) -> None:
    assert await channel.unary(ECHO, b"hello", timeout=10) == b"hello"
    assert await channel.unary(ECHO, b"", timeout=10) == b""


async def test_the_answer_to_a_call_is_passed_on(channel: Channel) -> None:
    answers: list[bytes | GrpcError] = []
    channel.call(ECHO, b"hello", 10, answers.append)
    assert answers == []
    await until(lambda: bool(answers))
    channel.call(FAIL, b"", 10, answers.append)
    await until(lambda: len(answers) == 2)
    channel.call("/test.Service/Sleep", b"", 0.3, answers.append)
    await until(lambda: len(answers) == 3)
    channel.call("/test.Service/Sleep", b"", 10, answers.append)
    channel.close()
    assert len(answers) == 4
    assert answers[0] == b"hello"
    codes = [answer.code for answer in answers if isinstance(answer, GrpcError)]
    assert codes == [Code.FAILED_PRECONDITION, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE]
    with pytest.raises(GrpcError):
        channel.call(ECHO, b"hello", 10, answers.append)
    assert len(answers) == 4


async def test_messages_larger_than_frames_and_windows(channel: Channel) -> None:
    large = bytes(range(256)) * 40_000
    answers = await asyncio.gather(*(channel.unary(ECHO, large[:size], timeout=30) for size in (16_379, 70_000, 10**7)))
    assert [len(answer) for answer in answers] == [16_379, 70_000, 10**7]
    assert answers[2] == large[: 10**7]


async def test_more_calls_than_the_server_allows_streams(channel: Channel) -> None:
    answers = await asyncio.gather(*(channel.unary(ECHO, b"%d" % number, timeout=30) for number in range(500)))
    assert answers == [b"%d" % number for number in range(500)]


async def test_the_servers_status_and_message_are_raised(channel: Channel) -> None:
    with pytest.raises(GrpcError) as failed:
        await channel.unary(FAIL, b"", timeout=10)
    assert (failed.value.code, failed.value.message) == (Code.FAILED_PRECONDITION, "mvcc: 100% of 'größe' used")
    assert failed.value.may_be_processed
    with pytest.raises(GrpcError) as failed:
        await channel.unary(FAIL, b"deadline", timeout=10)
    assert (failed.value.code, failed.value.message) == (Code.DEADLINE_EXCEEDED, "timeout 1s exceeded")
    with pytest.raises(GrpcError) as failed:
        await channel.unary("/test.Service/Nothing", b"", timeout=10)
    assert failed.value.code == Code.UNIMPLEMENTED


async def test_a_deadline_cancels_the_call_at_the_server(channel: Channel, service: Service) -> None:
    with pytest.raises(GrpcError) as failed:
        await channel.unary(SLEEP, b"", timeout=0.2)
    assert failed.value.code == Code.DEADLINE_EXCEEDED
    await until(service.ended.is_set)
    assert await channel.unary(ECHO, b"still usable", timeout=10) == b"still usable"


async def test_a_cancelled_caller_cancels_the_call_at_the_server(channel: Channel, service: Service) -> None:
    calling = asyncio.ensure_future(channel.unary(SLEEP, b"", timeout=30))
    await until(service.started.is_set)
    calling.cancel()
    await until(service.ended.is_set)


async def test_a_stream_in_both_directions(channel: Channel) -> None:
    received = Received()
    call = received.start(channel, CHAT)
    call.send(b"one")
    call.send(b"two")
    await until(lambda: len(received.messages) == 2)
    call.send(b"three")
    call.close_sending()
    assert await received.end is None
    assert received.messages == [b"ONE", b"TWO", b"THREE"]


async def test_a_long_stream_is_acknowledged_as_it_arrives(channel: Channel) -> None:
    received = Received()
    call = received.start(channel, COUNT)
    call.send(b"10000")
    call.close_sending()
    async with asyncio.timeout(60):
        assert await received.end is None
    assert received.messages == [b"%d" % number * 1000 for number in range(10_000)]


async def test_a_cancelled_stream_receives_nothing_more(channel: Channel) -> None:
    received = Received()
    call = received.start(channel, CHAT)
    call.send(b"one")
    await until(lambda: len(received.messages) == 1)
    call.cancel()
    call.send(b"two")
    await channel.unary(ECHO, b"", timeout=10)
    assert (received.messages, received.end.done()) == ([b"ONE"], False)


async def test_a_server_that_stops_ends_calls_and_the_channel(channel: Channel, server: Running) -> None:
    received = Received()
    received.start(channel, CHAT)
    waiting = asyncio.ensure_future(channel.unary(SLEEP, b"", timeout=30))
    await channel.unary(ECHO, b"", timeout=10)
    server.server.stop(0)
    with pytest.raises(GrpcError) as failed:
        await waiting
    assert failed.value.may_be_processed
    error = await received.end
    assert error is not None
    await until(lambda: channel.failure is not None)
    with pytest.raises(GrpcError) as refused:
        await channel.unary(ECHO, b"", timeout=10)
    assert (refused.value.code, refused.value.may_be_processed) == (Code.UNAVAILABLE, False)


async def test_a_unix_socket(server: Running, tmp_path: Path) -> None:
    channel = await Channel.connect(f"unix://{tmp_path}/grpc.sock")
    assert await channel.unary(ECHO, b"hello", timeout=10) == b"hello"
    channel.close()


async def test_unreachable_targets_are_errors(tmp_path: Path) -> None:
    for target in (f"unix://{tmp_path}/none", "http://127.0.0.1:1"):
        reason = "No such file or directory" if target.startswith("unix") else "Connection refused"
        with pytest.raises(GrpcError, match=f"cannot connect to {target}: {reason}") as failed:
            await Channel.connect(target)
        assert (failed.value.code, failed.value.may_be_processed) == (Code.UNAVAILABLE, False)
    with pytest.raises(ValueError, match="scheme"):
        await Channel.connect("ftp://x")


async def test_a_silent_server_times_out() -> None:
    writers: list[asyncio.StreamWriter] = []  # since Python 3.13, a writer without references closes its connection
    server = await asyncio.start_server(lambda reader, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(GrpcError, match=r"no answer within 0.1 s"):
        await Channel.connect(f"http://127.0.0.1:{port}", timeout=0.1)
    server.close()


async def test_calls_over_tls(service: Service, tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, datetime.now(UTC))
    credentials = grpc.ssl_server_credentials([(files.key.read_bytes(), files.certificate.read_bytes())])
    server = grpc.server(ThreadPoolExecutor(2), [service.handlers()])
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    tls = TlsClient(Trust(SystemClock(), files.ca.read_bytes()), protocol="h2")
    channel = await Channel.connect(f"https://127.0.0.1:{port}", tls=tls)
    assert await channel.unary(ECHO, b"x" * 100_000, timeout=10) == b"x" * 100_000
    channel.close()
    server.stop(0)
